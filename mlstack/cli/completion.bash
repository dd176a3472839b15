_mlstack_completion() {
    local IFS=$'\n' line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in *[!A-Za-z0-9._/,:=@+-]*) printf -v line %q "$line" ;; esac
        COMPREPLY+=("$line")
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _MLSTACK_COMPLETE=complete_bash \
        command mlstack 2>/dev/null)
}

complete -o default -F _mlstack_completion mlstack
