#!/usr/bin/env bash
# Unpacks Debian's Chromium, and the libraries that it needs, into .cache/browser; nothing is installed on the system.
# Without it, and without another Chromium, the tests of the report's page in a browser are skipped, and say so.
set -euo pipefail

folder=.cache/browser
leave() { printf 'setup: no browser: %s; its tests are skipped\n' "$*" >&2; exit 0; }

mkdir -p .cache
touch .cache/browser-tried
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then exit 0; fi
done
command -v apt-get >/dev/null || leave "there is no Chromium, and no apt-get to fetch it"

echo "setup: unpacking Chromium into $folder"
rm -rf "$folder"
mkdir -p "$folder/packages" "$folder/root"
# What an installation would bring; only told, not done.
packages=$(apt-get install --simulate --no-install-recommends chromium 2>"$folder/apt.log" | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
[ -n "$packages" ] || leave "apt-get does not know the package chromium (see $folder/apt.log)"
(cd "$folder/packages" && apt-get download $packages >>../apt.log 2>&1) ||
  leave "its packages could not be fetched (see $folder/apt.log)"
for package in "$folder"/packages/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
rm -rf "$folder/packages"
cat >"$folder/chromium" <<'END'
#!/usr/bin/env bash
root=$(cd "$(dirname "$0")" && pwd)/root
libraries=$(find "$root/usr/lib" -maxdepth 2 -path '*-linux-gnu*' -type d | paste -sd :)
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$root/usr/lib/chromium/chromium" "$@"
END
chmod +x "$folder/chromium"
"$folder/chromium" --version >>"$folder/apt.log" 2>&1 || leave "it does not start (see $folder/apt.log)"
echo "setup: $("$folder/chromium" --version)"
