cmake_minimum_required(VERSION 3.25)
# Writes OUT with the commit of SOURCE, only where it changed, so that nothing is rebuilt without need.
execute_process(COMMAND git -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "-dirty")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define MXT_GIT_COMMIT \"@commit@\"\n#define MXT_VERSION \"${VERSION}\"\n" @ONLY)
