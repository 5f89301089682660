#include "tests/kernels/kcheck.h"
void kcheck_bench(void)
{
}
