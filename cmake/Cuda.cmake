# Finds nvcc 13 and NVIDIA's libraries: in the toolkit, or in PyPI wheels (nvidia-cublas, nvidia-cudnn-cu13, nvidia-cuda-nvrtc,
# nvidia-cudnn-frontend) under MXT_CUDA_PACKAGES, a site-packages folder. Sets MXT_CUDA where all of it is there, and says what is
# missing where it is not. The language CUDA is not enabled: device code is a handful of files with one command each.
option(MXT_CUDA "Build libmindxtrain_cuda.so where nvcc is found" ON)
set(MXT_CUDA_PACKAGES "${CMAKE_SOURCE_DIR}/.cache/cuda" CACHE PATH "site-packages folder with NVIDIA's wheels")
set(MXT_CUDA_FOUND OFF)
if(MXT_CUDA)
  find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NVCC)
    execute_process(COMMAND ${NVCC} --version OUTPUT_VARIABLE _nvcc OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCH "release ([0-9]+)" _ "${_nvcc}")
    set(NVCC_MAJOR "${CMAKE_MATCH_1}")
    set(_hints /usr/local/cuda ${MXT_CUDA_PACKAGES} ${MXT_CUDA_PACKAGES}/nvidia/cu13 ${MXT_CUDA_PACKAGES}/nvidia/cudnn)
    find_path(CUDA_RUNTIME_INCLUDE cuda_runtime.h HINTS ${_hints} PATH_SUFFIXES include)
    find_path(CUBLASLT_INCLUDE cublasLt.h HINTS ${_hints} PATH_SUFFIXES include)
    find_path(CUDNN_INCLUDE cudnn.h HINTS ${_hints} PATH_SUFFIXES include)
    find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_hints} PATH_SUFFIXES include)
    find_path(NVRTC_INCLUDE nvrtc.h HINTS ${_hints} PATH_SUFFIXES include)
    find_library(CUDART_LIBRARY NAMES cudart libcudart.so.13 HINTS ${_hints} PATH_SUFFIXES lib64 lib)
    find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 HINTS ${_hints} PATH_SUFFIXES lib64 lib)
    find_file(CUDNN_LIBRARY NAMES libcudnn.so.9 HINTS ${_hints} PATH_SUFFIXES lib64 lib)
    set(_missing "")
    foreach(v CUDA_RUNTIME_INCLUDE CUBLASLT_INCLUDE CUDNN_INCLUDE CUDNN_FRONTEND_INCLUDE NVRTC_INCLUDE CUDART_LIBRARY CUBLASLT_LIBRARY)
      if(NOT ${v})
        list(APPEND _missing ${v})
      endif()
    endforeach()
    if(NOT NVCC_MAJOR STREQUAL "13")
      message(STATUS "CUDA: nvcc is release ${NVCC_MAJOR}, 13 is needed: built without")
    elseif(_missing)
      message(STATUS "CUDA: ${_missing} not found: run ./dev setup, or set MXT_CUDA_PACKAGES; built without")
    else()
      set(MXT_CUDA_FOUND ON)
      message(STATUS "CUDA: ${NVCC}, ${CUBLASLT_LIBRARY}")
    endif()
  endif()
endif()

# What device code is compiled for: Hopper while one works, which is quick; what is given away is for all cards since Ampere,
# 80;86;89;90a;120;90-virtual. `-virtual` is PTX, which a card of at least that compute capability compiles when it loads it.
set(MXT_CUDA_TARGETS "90a" CACHE STRING "compute capabilities of the CUDA object")
set(MXT_CUDA_GENCODE "")
foreach(t ${MXT_CUDA_TARGETS})
  string(REPLACE "-virtual" "" n ${t})
  if(n STREQUAL t)
    list(APPEND MXT_CUDA_GENCODE -gencode=arch=compute_${n},code=sm_${n})
  else()
    list(APPEND MXT_CUDA_GENCODE -gencode=arch=compute_${n},code=compute_${n})
  endif()
endforeach()

# cuda_object(OUT file.cu [HOPPER]): compiles one device source; appends the object to the list OUT. HOPPER: its kernels use the
# instructions of sm_90a alone (device/cuda/card.h: warpgroups), and so does their object.
function(cuda_object out source)
  get_filename_component(n ${source} NAME)
  set(gencode ${MXT_CUDA_GENCODE})
  if("HOPPER" IN_LIST ARGN)
    set(gencode -gencode=arch=compute_90a,code=sm_90a)
  endif()
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${n}.o)
  # For profilers; a line's table names the folder that it was built in, though, which what is given away must not.
  set(lines "")
  if(NOT MXT_PORTABLE)
    set(lines -lineinfo)
  endif()
  # Paths from the build folder, no name of a temporary file, and kernels' symbols after the source's place in the project instead of its
  # place on this disk: two folders give the same bytes.
  file(RELATIVE_PATH in_project ${CMAKE_SOURCE_DIR} ${source})
  file(RELATIVE_PATH from_here ${CMAKE_CURRENT_BINARY_DIR} ${source})
  file(RELATIVE_PATH headers ${CMAKE_CURRENT_BINARY_DIR} ${CMAKE_SOURCE_DIR}/src)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${NVCC} -std=c++20 ${gencode} -O3 ${lines} --objdir-as-tempdir -Xcompiler -fPIC,-fvisibility=hidden
            -Xcudafe --orig_src_path_name=${in_project} -I${headers} -MD -MF ${n}.d -c ${from_here} -o ${n}.o
    DEPENDS ${source}
    DEPFILE ${object}.d
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    COMMENT "nvcc ${n}"
    VERBATIM)
  set(${out} ${${out}} ${object} PARENT_SCOPE)
endfunction()
