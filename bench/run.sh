#!/usr/bin/env bash
# Builds the Coscheduling scheduler from its module and measures all three; arguments go to bench-scheduler.
set -euo pipefail
cd "$(dirname "$0")/.."
go -C bench/coscheduling build -trimpath -o ../../scheduler/bin/coscheduling .
scheduler/bin/bench-scheduler throughput --coscheduling scheduler/bin/coscheduling "$@"
