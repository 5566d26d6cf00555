# find_package(mcc): the compiler, the header of compiled networks, and a function that compiles one.
#
#   mcc_add_model(net SOURCE net.onnx [CONFIG net.yaml] [OPTIONS -O3 ...] [TYPE SHARED|STATIC|OBJECT] [PREFIX name] [HEADER])
#
# makes the target `net`: link it into a program (SHARED: net.so beside the program or on its rpath; STATIC, OBJECT: inside
# it), and its include path holds mcc.h. The network is compiled again when the model, its external weights, the
# configuration or mcc itself change. HEADER: net.h with a typed function is made too and on the include path.
# mcc::loader is mcc_load.c, for programs that load networks at run time.
cmake_minimum_required(VERSION 3.20)
get_filename_component(_mcc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(mcc_COMPILER "${_mcc_prefix}/bin/mcc" CACHE FILEPATH "the mcc command")
set(mcc_INCLUDE_DIR "${_mcc_prefix}/include")
set(mcc_LOADER_SOURCE "${_mcc_prefix}/share/mcc/mcc_load.c")

if(NOT TARGET mcc::loader)
    add_library(mcc::loader INTERFACE IMPORTED)
    set_target_properties(mcc::loader PROPERTIES INTERFACE_SOURCES "${mcc_LOADER_SOURCE}"
        INTERFACE_INCLUDE_DIRECTORIES "${mcc_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endif()

function(mcc_add_model name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "HEADER" "SOURCE;CONFIG;TYPE;PREFIX" "OPTIONS")
    if(NOT arg_SOURCE OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mcc_add_model(${name}): SOURCE is needed; unknown: ${arg_UNPARSED_ARGUMENTS}")
    endif()
    if(NOT arg_TYPE)
        set(arg_TYPE SHARED)
    endif()
    set(suffix_SHARED so)
    set(suffix_STATIC a)
    set(suffix_OBJECT o)
    if(NOT DEFINED suffix_${arg_TYPE})
        message(FATAL_ERROR "mcc_add_model(${name}): TYPE is SHARED, STATIC or OBJECT, not ${arg_TYPE}")
    endif()
    get_filename_component(source "${arg_SOURCE}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/mcc/${name}")
    set(output "${folder}/${name}.${suffix_${arg_TYPE}}")
    set(products "${output}")
    set(options ${arg_OPTIONS})
    set(inputs "${source}" "${mcc_COMPILER}")
    if(arg_CONFIG)
        get_filename_component(config "${arg_CONFIG}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
        list(APPEND options "--config=${config}")
        list(APPEND inputs "${config}")
    endif()
    if(arg_PREFIX)
        list(APPEND options "--prefix=${arg_PREFIX}")
    endif()
    if(arg_HEADER)
        list(APPEND options --emit=header)
        list(APPEND products "${folder}/${name}.h")
    endif()
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(OUTPUT ${products}
        COMMAND "${mcc_COMPILER}" "${source}" -o "${output}" -MD -MF "${folder}/${name}.d" ${options}
        DEPENDS ${inputs} DEPFILE "${folder}/${name}.d" COMMENT "Compiling network ${arg_SOURCE}" VERBATIM)
    add_custom_target(${name}-compile DEPENDS ${products})
    add_library(${name} INTERFACE)
    add_dependencies(${name} ${name}-compile)
    target_include_directories(${name} INTERFACE "${mcc_INCLUDE_DIR}" "${folder}")
    if(arg_TYPE STREQUAL SHARED)    # by its file name alone: that is what the program then asks for
        target_link_libraries(${name} INTERFACE "-l:${name}.so")
        target_link_options(${name} INTERFACE "-L${folder}" "-Wl,-rpath,${folder}")
        set_property(TARGET ${name} APPEND PROPERTY INTERFACE_LINK_DEPENDS "${output}")
    else()
        target_link_libraries(${name} INTERFACE "${output}")
    endif()
    set_target_properties(${name} PROPERTIES MCC_OUTPUT "${output}")
endfunction()
