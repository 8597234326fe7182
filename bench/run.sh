#!/usr/bin/env bash
# Builds the Coscheduling scheduler from its module and runs bench-scheduler; arguments go to it.
set -euo pipefail
cd "$(dirname "$0")/.."
go -C bench/coscheduling build -trimpath -o ../../scheduler/bin/coscheduling .
scheduler/bin/bench-scheduler --coscheduling scheduler/bin/coscheduling "$@"
