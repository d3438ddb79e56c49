#!/usr/bin/env bash
# Runs a long command; prints how long it will take, and every minute how long it has taken.
#
#   tests/progress.sh NAME MINUTES COMMAND...
set -euo pipefail
readonly NAME=$1 MINUTES=$2
shift 2

echo "$NAME: about $MINUTES minutes" >&2
# Not `sleep`: its process would outlive this one and keep its output open.
(
    exec {never}<> <(:)
    until read -rt 60 -u "$never"; do echo "$NAME: $((SECONDS / 60)) of about $MINUTES minutes" >&2; done
) &
readonly CLOCK=$!
trap 'kill "$CLOCK" 2>/dev/null || true' EXIT
"$@"
echo "$NAME: took $((SECONDS / 60)) min $((SECONDS % 60)) s" >&2
