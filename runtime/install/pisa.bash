# Completion of pisa and pisac for bash: commands, their options as --help lists them, and files.
_pisa() {
  local word=${COMP_WORDS[COMP_CWORD]} program=$1 command=${COMP_WORDS[1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    # shellcheck disable=SC2207 # words without blanks
    COMPREPLY=($(compgen -W "$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p') --help --version" -- "$word"))
  elif [ "${word#-}" != "$word" ]; then
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$("$program" "$command" --help 2>/dev/null | grep -oE '^ +-[-a-zA-Z]+' | tr -d ' ') --help" -- "$word"))
  fi
}
complete -o default -F _pisa pisa pisac
