#!/usr/bin/env bash
# Packs what test-gpu and bench-gpu run, and says what it weighs: a folder, and the archive of it that travels.
# usage: gpu-bundle.sh RELEASE FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1 folder=$2
archive=$folder.tar.xz
mib_max=24

rm -rf "$folder"
mkdir -p "$folder/models/tiny-gguf"
for bin in pd-agent pd-router gpu-agents gpu-proof gpu-bench; do strip -o "$folder/$bin" "$release/$bin"; done
golden=agent/engine/golden
models=(llama qwen2 qwen3 gemma3 mistral-full-fp8 qwen3-moe qwen3-moe-fp8 qwen3-5 qwen3-5-moe qwen3-next
    gpt-oss-mxfp4 deepseek-v2 deepseek-v3 deepseek-v3-fp8)
cp -r "${models[@]/#/$golden/tiny-}" "$folder/models"
rm "$folder"/models/*/{golden,kv}.safetensors
cp -r $golden/published "$folder/models"
cp $golden/tiny-gguf/{llama-q4_0,llama-k,qwen3-q8_0}.gguf "$folder/models/tiny-gguf"
strip -o "$folder/model-speed" "$release/examples/model-speed"
cp scripts/test-gpu.sh bench/gpu/{run,peer}.py "$folder"
tar -C "$(dirname "$folder")" -c --owner=0 --group=0 "$(basename "$folder")" | xz -9 >"$archive"

du -h "$folder"/* "$archive"
bytes=$(stat -c %s "$archive")
if [ "$bytes" -gt $((mib_max << 20)) ]; then
    echo "pdserve: $archive has $bytes bytes, more than $mib_max MiB." >&2
    exit 1
fi
