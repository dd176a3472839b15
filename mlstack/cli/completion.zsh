#compdef mlstack

_mlstack_completion() {
    local line
    local -a values shown
    while IFS= read -r line; do
        values+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done < <(_TYPER_COMPLETE_ARGS="${words[1,CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \
        _MLSTACK_COMPLETE=complete_fish command mlstack 2>/dev/null)
    if (( $#values == 0 )); then
        _files
        return
    fi
    [[ $PREFIX == --*=* ]] && compset -P '--*='
    compadd -l -d shown -a values
}

if [[ ${funcstack[1]} == _mlstack ]]; then
    _mlstack_completion "$@"
else
    compdef _mlstack_completion mlstack
fi
