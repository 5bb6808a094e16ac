#!/usr/bin/env bash
# Every fuzz target, one after the other, for SECONDS under libFuzzer, which bolero brings: no nightly, since the sanitizer
# that would need one finds little in a workspace whose parsers hold no `unsafe`. ONLY is a part of names.
#   scripts/fuzz.sh SECONDS FOLDER [ONLY]
# COVERAGE=0 tries random changes of the corpora for as long, with the tests that `make test` has built.
# In FOLDER grow the corpora that are not committed, and lies each input that failed: put it into the target's own corpus,
# which `make test` replays, with what mends it.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1 folder=$2 only=${3:-}
case $seconds in '' | *[!0-9]* | 0) echo "fuzz: SECONDS is a whole number above 0" >&2; exit 2 ;; esac
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TERM_COLOR=never
if [ "${COVERAGE:-1}" = 0 ]; then
    unset CARGO_PROFILE_DEV_DEBUG
    PDSERVE_FUZZ_SECONDS=$seconds RUST_BACKTRACE=0 exec scripts/cargo-tests.sh test --workspace --features pd-e2e/engines,pd-e2e/kube,pd-e2e/rdma --lib --bins -- \
        "fuzz::$only" --nocapture --test-threads=1 -q 2>&1 | grep --line-buffered ' runs, \|panicked\|seed\|FAILED\|took'
fi
export RUSTFLAGS="--cfg fuzzing --cfg fuzzing_libfuzzer -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=3 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

echo "fuzz: building the tests with coverage (the first build takes some minutes)"
# All that tests import it; with --target the flags are not those of build scripts.
mapfile -t crates < <(grep -l '^pd-fuzz.workspace' ./*/Cargo.toml agent/*/Cargo.toml | xargs grep -hm1 '^name' | sed 's/.*"\(.*\)"/-p\1/')
built=$(cargo test --lib --bins "${crates[@]}" --target "$host" --target-dir "$folder/build" --no-run --message-format=json-render-diagnostics)
mapfile -t tests < <(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' <<<"$built")

failed=0
for test in "${tests[@]}"; do
    mapfile -t targets < <(CARGO_BOLERO_SELECT=all "$test" fuzz:: --nocapture --test-threads=1 \
        | sed -n 's/^{"__bolero_target".*"work_dir":"\([^"]*\)".*"test_name":"\([^"]*\)"}$/\2 \1/p')
    for target in "${targets[@]}"; do
        read -r name home <<<"$target"
        short=${home##*/}
        [[ $short == *"$only"* ]] || continue
        grown=$folder/corpus/$short found=$folder/found
        mkdir -p "$grown" "$found"
        # -timeout is a hang; what an input may allocate is the target's own bound.
        log=$folder/$short.log
        if BOLERO_LIBTEST_HARNESS=1 BOLERO_TEST_NAME=$name RUST_BACKTRACE=0 BOLERO_LIBFUZZER_ARGS="$grown $home/corpus \
            -artifact_prefix=$found/$short- -max_total_time=$seconds -timeout=10 -rss_limit_mb=4096 -max_len=8192 -print_final_stats=1" \
            "$test" "$name" --exact --nocapture --quiet --test-threads 1 >"$log" 2>&1; then
            runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
            printf '%-26s %9d runs, %6d/s, %6d edges\n' "$short" "$runs" $((runs / seconds)) \
                "$(grep -o 'cov: [0-9]*' "$log" | tail -n1 | tr -dc 0-9)"
        else
            failed=1
            printf '%-26s FAILED: %s\n' "$short" "$(grep -o 'Test unit written to .*' "$log" | tail -n1)"
            grep -B2 -A12 -m1 'panicked\|Test Failure\|ERROR: libFuzzer' "$log" | head -n 20
        fi
    done
done
exit "$failed"
