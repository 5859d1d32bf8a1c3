/* The agent program of the benchmark: says when its first instruction ran, and ends when it is let go.
 *
 * argv[1] is a FIFO that is told CLOCK_MONOTONIC in ns, argv[2] one that it waits for. Exit 1: it could not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct timespec now;
    char byte;
    int told, let_go;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (argc != 3 || (told = open(argv[1], O_WRONLY)) < 0)
        return 1;
    if (dprintf(told, "%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec) < 0 || close(told) < 0)
        return 1;
    return (let_go = open(argv[2], O_RDONLY)) < 0 || read(let_go, &byte, 1) != 0;
}
