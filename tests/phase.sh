#!/usr/bin/env bash
# Runs one phase of `make test` and records how long it took, in seconds and CPU seconds.
#
#   tests/phase.sh NAME COMMAND...    run a phase
#   tests/phase.sh --begin            delete the records of the last run
#   tests/phase.sh --table            print a table of the phases, as in CONTRIBUTING
#
# Concurrent phases each take longer than alone, so their sum is more than the total.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly NOTES=target/phases.tsv
case $1 in
--begin)
    mkdir -p target
    printf 'all\t%s\n' "$(date +%s)" >"$NOTES"
    ;;
--table)
    awk -F '\t' -v now="$(date +%s)" '
        NR == 1 { started = $2; print "| phase | begins at | seconds | CPU seconds |\n|---|---:|---:|---:|"; next }
        { split($4, used, " "); own = used[1] + used[2]; cpu += own; printf "| %s | %d | %d | %d |\n", $1, $2 - started, $3, own }
        END { printf "| **all** | 0 | **%d** | %d |\n", now - started, cpu }' "$NOTES"
    ;;
*)
    name=$1 started=$(date +%s) status=0
    shift
    TIMEFORMAT='%U %S'
    exec {out}>&1 {err}>&2
    used=$({ time "$@" >&"$out" 2>&"$err"; } 2>&1) || status=$?
    [[ ! -e $NOTES ]] || printf '%s\t%s\t%s\t%s\n' "$name" "$started" "$(($(date +%s) - started))" "$used" >>"$NOTES"
    exit "$status"
    ;;
esac
