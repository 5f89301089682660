/* The quire program: picks the command. */
#include <stdio.h>

int main(void)
{
    puts("quire");
    return 0;
}
