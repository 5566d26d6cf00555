#!/usr/bin/env bash
# One CI step: check, compile, try out.  usage: build-model.sh MODEL.onnx OUTPUT.so [MCC OPTIONS]
# MCC: the compiler (default: mcc). MCC_MAX_SIZE: refuse a larger output, in bytes or with a suffix K, M, G.
set -euo pipefail
model=$1 output=$2
shift 2
mcc=${MCC:-mcc}
"$mcc" check "$@" "$model"
"$mcc" "$@" ${MCC_MAX_SIZE:+--max-output-size="$MCC_MAX_SIZE"} -o "$output" "$model"
"$mcc" inspect "$output"
"$mcc" bench --runs=3 "$output" >/dev/null
