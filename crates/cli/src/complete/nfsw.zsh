#compdef nfsw
_nfsw() {
    local -a lines more whole shown_more shown_whole
    local line value
    lines=("${(@f)$(NFSW_COMPLETE=zsh command nfsw -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        value=${line%%$'\t'*}
        if [[ $value == *[/:=] ]]; then
            more+=("$value")
            shown_more+=("${line/$'\t'/  -- }")
        else
            whole+=("$value")
            shown_whole+=("${line/$'\t'/  -- }")
        fi
    done
    (( $#more )) && compadd -S '' -d shown_more -a more
    (( $#whole )) && compadd -d shown_whole -a whole
}
if [[ $funcstack[1] == _nfsw ]]; then
    _nfsw "$@"
else
    compdef _nfsw nfsw
fi
