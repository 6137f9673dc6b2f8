// A library that needs one which is not there.
int skrull_test_function_of_a_missing_library();
int skrull_test_broken_plugin();
int skrull_test_broken_plugin() {
  return skrull_test_function_of_a_missing_library();
}
