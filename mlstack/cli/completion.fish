function __mlstack_complete
    set -lx _MLSTACK_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION get-args
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp | string collect)
    set -l offered (command mlstack 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command mlstack --no-files --arguments '(__mlstack_complete)'
