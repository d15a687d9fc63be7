#!/usr/bin/env bash
# Compares the jars in a folder with the committed list of their hashes, and names every difference:
# check-jars.sh LIST FOLDER
set -euo pipefail
list=$1 folder=$2

problems=()
listed=" "
while read -r _ name; do
  listed+="$name "
  [ -e "$folder/$name" ] || problems+=("$name: it is missing")
done <"$list"
while IFS= read -r name; do
  case "$listed" in *" $name "*) ;; *) problems+=("$name: it is not in the list") ;; esac
done < <(find "$folder" -mindepth 1 -printf '%P\n' | LC_ALL=C sort)
# --strict: a line that is no hash is an error, not something to pass over.
if ! answer=$({ cd "$folder" && LC_ALL=C sha256sum --check --strict --ignore-missing --quiet -; } <"$list" 2>&1); then
  while IFS= read -r line; do
    case "$line" in
    *": FAILED") problems+=("${line%: FAILED}: it has another hash") ;;
    "sha256sum: WARNING: "*"did NOT match") ;;
    "sha256sum: "*) problems+=("$list: ${line#sha256sum: }") ;;
    esac
  done <<<"$answer"
  [ ${#problems[@]} -gt 0 ] || problems+=("$list: ${answer:-it cannot be compared}")
fi

if [ ${#problems[@]} -gt 0 ]; then
  printf 'The jars in %s are not those of %s:\n' "$folder" "$list"
  printf '  %s\n' "${problems[@]}"
  printf 'Do not use them. If you changed the versions in the pom.xml beside the list, run `make pin-jars`.\n'
  exit 1
fi >&2
