"""Completions of commands and flags for shells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SHELLS = ("bash", "zsh", "fish")

BASH = """\
# {program} completion for bash: source <({program} completion bash)
{function}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} --help --version"
  elif [[ "$word" == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {function} {program}
"""
CASE = '      {command}) words="{flags} --help" ;;'


def script(shell: str, program: str, flags: Mapping[str, Iterable[str]]) -> str:
    """Return a script that a shell reads; `flags` has the flags of each command."""
    if shell == "fish":
        return "\n".join(_fish(program, flags)) + "\n"
    text = BASH.format(
        program=program,
        function=f"_{program.replace('-', '_')}",
        commands=" ".join(flags),
        cases="\n".join(
            CASE.format(command=command, flags=" ".join(names)) for command, names in flags.items()
        ),
    )
    if shell == "zsh":
        # zsh reads bash's completions.
        text = f"autoload -U +X bashcompinit && bashcompinit\n{text.replace('for bash', 'for zsh')}"
        text = text.replace("completion bash)", "completion zsh)")
    return text


def _fish(program: str, flags: Mapping[str, Iterable[str]]) -> Iterable[str]:
    yield f"# {program} completion for fish: {program} completion fish | source"
    yield f"complete -c {program} -n __fish_use_subcommand -f -a '{' '.join(flags)}'"
    for command, names in flags.items():
        condition = f"-n '__fish_seen_subcommand_from {command}'"
        for name in ("--help", *names):
            yield f"complete -c {program} {condition} -l {name.removeprefix('--')}"
