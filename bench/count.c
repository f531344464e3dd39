/* The marks between which callgrind counts: `cc -shared -fPIC` makes a library of them, for `bench/instructions.py`. */
#include <valgrind/callgrind.h>

void start_count(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop_count(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
