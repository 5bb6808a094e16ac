#!/usr/bin/env bash
# Plants each fault of simulation/planted in a copy of the working tree, and runs seeds until one fails: the simulation must find
# them all. Usage: scripts/planted.sh SEEDS TARGET_DIR "WORDS"
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=$1 dir=$2 only=${3:-}
tree=$dir/tree build=$dir/build
mkdir -p "$tree" "$build"

# A file that differs is written with the time of now, so that cargo sees what an earlier run, also one that was cut off, has left.
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ -e "$file" ] && ! cmp -s "$file" "$tree/$file" || continue
    mkdir -p "$tree/$(dirname "$file")"
    cp "$file" "$tree/$file"
done

# Out of any repository, so that paths are those of the copy.
plant() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$dir git apply "$@"); }
compile() {
    (cd "$tree" && CARGO_TARGET_DIR=$build scripts/cargo-tests.sh build -q --config simulation/profile.toml --workspace \
        --features pd-e2e/engines,pd-e2e/kube,pd-e2e/rdma --bin pd-simulation)
}

here=$PWD missed=0 found=0
for patch in "$here"/simulation/planted/*.patch; do
    name=$(basename "$patch" .patch)
    case " ${only:-$name} " in *" $name "* | *" ${name%%-*} "*) ;; *) continue ;; esac
    if ! plant "$patch"; then
        echo "$name: does not apply" && missed=$((missed + 1)) && continue
    fi
    if ! compile; then
        echo "$name: does not compile" && missed=$((missed + 1))
    elif "$build/tests/release/pd-simulation" --seeds "$seeds" --failures-max 1 >"$dir/$name.txt" 2>"$dir/$name.log"; then
        echo "$name: NOT FOUND in $seeds seeds" && missed=$((missed + 1))
    else
        # More than one has failed where another was under way; the first counts.
        echo "$name: $(head -n 1 "$dir/$name.txt" | cut -c 1-200)" && found=$((found + 1))
    fi
    plant -R "$patch"
done
echo "$found planted faults found, $missed not"
[ "$missed" = 0 ]
