#!/usr/bin/env bash
# Runs every function locally until Ctrl-C: DynamoDB Local with the demo's rows, and `cargo lambda watch`. Nothing reaches AWS.
#
#   tests/local.sh [COMMAND...]      with a command: runs it when the functions are up, then exits
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PATH="$root/.tools/venv/bin:$PATH"
read -r db_port watch_port < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[server.getsockname()[1] for server in sockets])')
log=$(mktemp)
started=()
stop() {
    trap - EXIT INT TERM
    for id in "${started[@]}"; do kill "$id" 2>/dev/null || true; done
    wait || true
    rm -f "$log"
}
trap stop EXIT
trap 'exit 0' INT TERM

# Port, process, name.
wait_for() {
    for _ in $(seq 600); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log" >&2
    echo "$3 did not start" >&2
    exit 1
}

# Remove the shell's AWS variables: credentials, region or endpoint could lead to AWS.
for name in $(compgen -e | grep '^AWS_' | grep -v '^AWS_CA_BUNDLE$'); do unset "$name"; done
unset ALLOW_AWS

cargo build --quiet --locked --bin janitor
(
    cd .tools/dynamodb-local
    exec java -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -inMemory -sharedDb -disableTelemetry -port "$db_port"
) >"$log" 2>&1 &
started+=($!)
wait_for "$db_port" "$!" "DynamoDB Local"
endpoint=http://127.0.0.1:$db_port
cargo run --quiet --locked --bin janitor -- demo --quiet --endpoint "$endpoint"

export AWS_ENDPOINT_URL_DYNAMODB=$endpoint ATTRIBUTES_TABLE=demo_attributes MODE=${MODE:-dry-run}
export AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
# Not through cargo, so that $! is the id of the process.
cargo-lambda lambda watch --ignore-changes -A 127.0.0.1 -P "$watch_port" &
started+=($!)
wait_for "$watch_port" "$!" "cargo lambda watch"
export WATCH_PORT=$watch_port
cat <<END

The functions are up, in mode $MODE. In another terminal (the first invocation of a function compiles it):

  export PATH="$root/.tools/venv/bin:\$PATH"
  cargo lambda invoke daily-cleanup   -A 127.0.0.1 -P $watch_port --data-file events/dry-run.json
  cargo lambda invoke daily-cleanup   -A 127.0.0.1 -P $watch_port --data-ascii '{"mode": "delete"}'
  cargo lambda invoke index-repair    -A 127.0.0.1 -P $watch_port --data-file events/dry-run.json
  cargo lambda invoke metrics-emitter -A 127.0.0.1 -P $watch_port --data-file events/audit.json
  cargo run --bin janitor -- audit --endpoint $endpoint --table demo_attributes

Ctrl-C ends the functions and DynamoDB Local, and with it the table.
END
if [ $# -gt 0 ]; then
    "$@"
else
    wait "${started[1]}"
fi
