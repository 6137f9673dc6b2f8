// skrullctl: see docs/cli.md.
#include "skrull/cli/commands.h"

int main(int argc, char** argv) { return skrull::cli::Run(argc, argv); }
