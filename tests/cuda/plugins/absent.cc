// A library that plugins/broken.cc could be linked to, and that is not there
// when it is opened.
int skrull_test_function_of_a_missing_library();
int skrull_test_function_of_a_missing_library() { return 0; }
