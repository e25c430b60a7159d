_nfsw() {
    local line
    COMPREPLY=()
    # Nothing is split or expanded: a name may hold anything.
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(NFSW_COMPLETE=bash command nfsw -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _nfsw nfsw
