// main() of every test binary. Catch2 compiles into this one file.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
