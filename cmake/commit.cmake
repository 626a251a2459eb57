# Run at every build (cmake -P) with SOURCE and OUT: writes the commit that is being built into the header OUT, if that changes it.
# "-dirty" after it: tracked files differ from the commit. "unknown": SOURCE is no git checkout of its own (a tarball).
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --show-toplevel --short=12 HEAD
                  OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    string(REPLACE "\n" ";" answer "${answer}")
    list(GET answer 0 top)
    file(REAL_PATH ${SOURCE} source)
    if(top STREQUAL source)
      list(GET answer 1 commit)
      execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} --no-optional-locks status --porcelain --untracked-files=no
                      OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes)
        string(APPEND commit -dirty)
      endif()
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n#define GLINT_COMMIT \"@commit@\"\n" @ONLY)
