#!/usr/bin/env bash
# Runs a command with one DynamoDB Local for all the test binaries that it starts; each test has its own tables.
#
#   tests/with-dynamodb-local.sh COMMAND...
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
log=$(mktemp)
(
    cd "$root/.tools/dynamodb-local"
    # With the C2 compiler: it saves CPU time over a whole `make test`, not in a single module.
    exec java -Xmx2g -XX:+UseSerialGC -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -inMemory -sharedDb -disableTelemetry -port "$port"
) >"$log" 2>&1 &
engine=$!
trap 'kill "$engine" 2>/dev/null; wait "$engine" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 600); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        export DYNAMODB_LOCAL_ENDPOINT="http://127.0.0.1:$port"
        "$@"
        exit
    fi
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.1
done
cat "$log" >&2
echo "DynamoDB Local did not start" >&2
exit 1
