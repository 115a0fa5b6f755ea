# Sourced by scripts that run in sections. Each section has a title and a duration. All sections run, even after a failure.

failed_sections=()
times=()

# section TITLE COMMAND...: runs the command, and records its duration and whether it failed.
section() {
    local title=$1 began=$SECONDS code=0
    shift
    printf '\n=== %s\n' "$title"
    "$@" || code=$?
    local took=$((SECONDS - began))
    printf '=== %s: %s after %d:%02d\n' "$title" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" $((took / 60)) $((took % 60))
    times+=("$(printf '%3d:%02d  %s' $((took / 60)) $((took % 60)) "$title")")
    [ $code = 0 ] || failed_sections+=("$title")
    return 0
}

# cargo_quietly ARGUMENTS...: runs cargo. Without a terminal, it prints a count of crates instead of their names.
cargo_quietly() {
    if [ -t 2 ]; then
        cargo "$@"
        return
    fi
    cargo "$@" 2> >(awk '/^ *(Compiling|Checking|Downloaded|Downloading|Updating|Locking) /{
        if (/Compiling|Checking/ && ++n % 50 == 0) { print "  " n " crates"; fflush() } next } { print; fflush() }' >&2)
}

# finish: prints the durations. Fails if a section failed.
finish() {
    printf '\n'
    printf '  %s\n' "${times[@]}"
    if [ ${#failed_sections[@]} != 0 ]; then
        printf 'FAILED: %s\n' "$(IFS=,; echo "${failed_sections[*]}")"
        return 1
    fi
}
