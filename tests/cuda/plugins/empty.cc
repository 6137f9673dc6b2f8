// A library that is no plug-in.
int skrull_test_empty_plugin();
int skrull_test_empty_plugin() { return 0; }
