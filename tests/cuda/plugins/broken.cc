// A backend that needs a library which is not there.
extern "C" {
int skrull_test_function_of_a_missing_library();
int skrull_create_attention_backend();
int skrull_create_attention_backend() {
  return skrull_test_function_of_a_missing_library();
}
}
