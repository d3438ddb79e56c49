#!/usr/bin/env bash
# Runs one phase of `make test` and records how long it took, in seconds and CPU seconds.
#
#   tests/phase.sh NAME COMMAND...    run a phase
#   tests/phase.sh --begin            delete the records of the last run
#
# tests/python/phases.py prints the records. Concurrent phases each take longer than alone, so their sum is more than the total.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly NOTES=target/phases.tsv
case $1 in
--begin)
    mkdir -p target
    printf 'all\t%s\n' "$(date +%s)" >"$NOTES"
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
