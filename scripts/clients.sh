#!/usr/bin/env bash
# Starts a monolithic agent, and a pair behind a router, and lets unmodified clients talk to both.
# usage: clients.sh FOLDER_WITH_BINARIES MODEL     PDSERVE_PYTHON: a python that has openai
set -euo pipefail
bin=$1 model=$2
here=$(cd "$(dirname "$0")" && pwd)
cache=$(dirname "$here")/.cache
logs=$(mktemp -d)

python=${PDSERVE_PYTHON:-}
if [ -z "$python" ]; then
    python=$cache/clients-venv/bin/python
    if [ ! -x "$python" ]; then
        echo "installing openai into $cache/clients-venv (once)"
        python3 -m venv "$cache/clients-venv" || {
            echo "python3 cannot make a virtual environment; on Debian: apt install python3-venv" >&2
            exit 1
        }
        "$python" -m pip install --quiet 'openai>=2,<4'
    fi
fi

pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$logs"
}
trap stop EXIT

start() { # NAME ADDRESS COMMAND...
    local name=$1 address=$2
    shift 2
    "$@" --host "$address" >"$logs/$name" 2>&1 &
    pids+=($!)
}

ready() { # NAME URL
    for _ in $(seq 600); do
        if curl -fsS -o /dev/null "$2" 2>/dev/null; then return; fi
        sleep 0.1
    done
    echo "$1 is not ready after 60 s; its log:" >&2
    cat "$logs/$1" >&2
    exit 1
}

agent=("$bin/pd-agent" --model-path "$model" --served-model-name smollm2 --cpu-threads 2)
start alone 127.77.0.1 "${agent[@]}"
start prefill 127.77.0.2 "${agent[@]}" --disaggregation-mode prefill
start decode 127.77.0.3 "${agent[@]}" --disaggregation-mode decode
for worker in alone:1 prefill:2 decode:3; do
    ready "${worker%:*}" "http://127.77.0.${worker#*:}:30000/health"
done
start router 127.77.0.4 "$bin/pd-router" --pd-disaggregation \
    --prefill http://127.77.0.2:30000 8998 --decode http://127.77.0.3:30000
ready router http://127.77.0.4:30000/ready

"$python" "$here/clients.py" http://127.77.0.1:30000 http://127.77.0.4:30000
