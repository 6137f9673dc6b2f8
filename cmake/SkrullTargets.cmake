# One function per kind of target, so that every target of a kind is built with
# the same warnings, includes and alias.

# Compile options of our own code; never PUBLIC.
add_library(skrull_build_options INTERFACE)
target_compile_options(skrull_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow;-Wnon-virtual-dtor;-Wimplicit-fallthrough>
  # The same bytes on every machine: no fused multiply-add, no re-association.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # libstdc++ 12's own std::stable_sort uses what it deprecates.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>
  # g++ 12 sees overlaps in any "text" + string at -O3 (its bug 105651).
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SKRULL_WARNINGS_AS_ERRORS}>>:-Werror>
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<BOOL:${SKRULL_WARNINGS_AS_ERRORS}>>:-Wthread-safety>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND
   CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  # Name templates as g++ 12 does, which compiled the distribution's Abseil.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fclang-abi-compat=17>)
endif()
if(SKRULL_SANITIZE)
  add_compile_options(-fsanitize=${SKRULL_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SKRULL_SANITIZE})
  # A program in C brings our libraries the runtime's part for C++ as well.
  add_link_options($<$<LINK_LANG_AND_ID:C,Clang>:--driver-mode=g++>)
endif()

# "skrull/planner/x.h" is server/planner/x.h, in the tree as when installed.
set(SKRULL_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${SKRULL_INCLUDE_DIR}/skrull)
foreach(room IN ITEMS planner=server/planner server=server client=client/cpp
                      c_api=client/c_api cli=client/cli cuda=cuda deploy=deploy
                      tests=tests)
  string(REGEX MATCH "^([^=]+)=(.+)$" _ ${room})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${CMAKE_MATCH_2}
       ${SKRULL_INCLUDE_DIR}/skrull/${CMAKE_MATCH_1} SYMBOLIC)
endforeach()

# skrull_cc_library(NAME name [SRCS ...] [DEPS ...] [PRIVATE_DEPS ...] [INSTALL])
# Makes skrull_<name> with alias skrull::<name>. INSTALL exports it.
function(skrull_cc_library)
  cmake_parse_arguments(ARG "INSTALL" "NAME" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target skrull_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SRCS})
  add_library(skrull::${ARG_NAME} ALIAS ${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${SKRULL_INCLUDE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:skrull_build_options> ${ARG_PRIVATE_DEPS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${ARG_NAME}
    POSITION_INDEPENDENT_CODE ON)
  if(ARG_INSTALL)
    install(TARGETS ${target} EXPORT skrull-targets)
  endif()
endfunction()

# skrull_cc_binary(NAME name SRCS ... [DEPS ...] [INSTALL] [COMPONENT name])
function(skrull_cc_binary)
  cmake_parse_arguments(ARG "INSTALL" "NAME;COMPONENT" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${SKRULL_INCLUDE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} skrull_build_options)
  if(ARG_COMPONENT)
    set(component COMPONENT ${ARG_COMPONENT})
  endif()
  if(ARG_INSTALL)
    install(TARGETS ${ARG_NAME} ${component})
  endif()
endfunction()

# skrull_cc_test(NAME name SRCS ... [DEPS ...] [SERIAL] [ARGS ...])
# One Catch2 binary is one CTest; SERIAL ones run alone. Tests find the shared
# data folder, when there is one, in SKRULL_SHARED_DATA.
function(skrull_cc_test)
  cmake_parse_arguments(ARG "SERIAL" "NAME" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT SKRULL_BUILD_TESTS)
    return()
  endif()
  skrull_cc_binary(NAME ${ARG_NAME} SRCS ${ARG_SRCS}
                   DEPS ${ARG_DEPS} skrull_test_main)
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT 900 LABELS "${ARG_LABELS}")
  if(ARG_SERIAL)
    set_tests_properties(${ARG_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# skrull_cc_bench(NAME name SRCS ... [DEPS ...]): a Google Benchmark binary. Not
# a CTest: speed is measured by `./dev bench`, never asserted in tests.
function(skrull_cc_bench)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(SKRULL_BUILD_BENCHMARKS)
    skrull_cc_binary(NAME ${ARG_NAME} SRCS ${ARG_SRCS}
                     DEPS ${ARG_DEPS} benchmark::benchmark)
  endif()
endfunction()

# The environment of the Python tests, which `./dev test` makes.
set(SKRULL_PYTHON ${PROJECT_SOURCE_DIR}/build/python/bin/python CACHE FILEPATH
    "Interpreter that has what tests/python/requirements.txt lists")

# skrull_python_test(NAME name COMMAND arguments...): runs the interpreter of the
# Python tests with the package and the libraries of this build. Skipped where
# there is no interpreter, and under sanitizers, which it would have to be built
# with. Add SERIAL for one that runs alone.
function(skrull_python_test)
  cmake_parse_arguments(ARG "SERIAL" "NAME" "COMMAND" ${ARGN})
  add_test(NAME ${ARG_NAME}
    COMMAND ${PROJECT_SOURCE_DIR}/tests/python/run
            ${SKRULL_PYTHON} "${SKRULL_SANITIZE}" ${ARG_COMMAND})
  set(environment
    PYTHONPATH=${PROJECT_SOURCE_DIR}/client/python:${PROJECT_SOURCE_DIR}/tests/python
    PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
    SKRULL_BUILD_DIR=${PROJECT_BINARY_DIR}
    SKRULL_LIBRARY_DIR=$<TARGET_FILE_DIR:skrull_client_c>:$<TARGET_FILE_DIR:skrull_exec_c>
    SKRULL_DAEMON=$<TARGET_FILE:skrulld> SKRULL_CTL=$<TARGET_FILE:skrullctl>)
  set_tests_properties(${ARG_NAME} PROPERTIES
    ENVIRONMENT "${environment}" LABELS python TIMEOUT 900 SKIP_RETURN_CODE 77)
  if(ARG_SERIAL)
    set_tests_properties(${ARG_NAME} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
