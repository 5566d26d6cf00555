# mcc's only build file: one non-recursive make, out of tree, `make -j` safe, headers tracked by -MMD.
#
#   make                 the compiler: $(BUILD)/mcc, libmcc.a, libmcc.so and the two public headers
#   make help            every target
#
# Sources are whole folders: a new .c file in one of them is built. Three kinds of code come out of one tree:
# the compiler (C11, gcc or clang, plus one C++ shim around lld), the runtime (freestanding C that clang
# compiles for every target architecture; its objects are embedded in the compiler) and the tests.

SANITIZE ?=
comma := ,
BUILD ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
PREFIX ?= /usr/local
DESTDIR ?=

CC = gcc
CXX = g++
CLANG ?= clang-19
PROTOC_C ?= protoc-c
LLVM_CONFIG ?= llvm-config-19
LLVM_INCLUDE := $(shell $(LLVM_CONFIG) --includedir 2>/dev/null)
LLVM_LIBDIR := $(shell $(LLVM_CONFIG) --libdir 2>/dev/null)

OPT ?= -O2 -g
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Werror
SAN := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
INCLUDE := -I. -I$(BUILD)/gen
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(OPT) -fPIC -fvisibility=hidden $(SAN) $(INCLUDE) $(WARN) $(CFLAGS)
CXXFLAGS_ALL := -std=c++17 $(OPT) -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti $(SAN) $(INCLUDE) -Wall -Wextra -Werror $(CXXFLAGS)
LIBS := -L$(LLVM_LIBDIR) -llldELF -llldCOFF -llldMachO -llldWasm -llldCommon -lLLVM-19 -lz -lzstd -lprotobuf-c -lyaml -lxxhash -lm -lpthread
# The code generators of the five targets, and what lld needs beside them; Polly is not there (codegen/llvm_absent.cpp).
LLVM_STATIC = $(filter-out -lPolly% -lLLVMWindowsManifest,$(shell $(LLVM_CONFIG) --link-static --libs \
    x86codegen aarch64codegen riscvcodegen armcodegen webassemblycodegen \
    x86asmparser aarch64asmparser riscvasmparser webassemblyasmparser lto option textapi windowsdriver debuginfodwarf debuginfopdb libdriver))
LIBS_STATIC = $(subst -lLLVM-19,$(LLVM_STATIC),$(LIBS))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
FORCE:
.PHONY: FORCE

# make V=1 shows whole commands.
say = $(if $(V),,@printf '  %-8s%s\n' $1 $2;)

# ---- sources --------------------------------------------------------------------------------------

SOURCES := runtime/mcc_load.c runtime/rt_cpu.c $(sort $(shell find ir passes frontend codegen cli -name '*.c'))
# The command's own files; everything else is the library.
COMMAND := runtime/mcc_load.c $(filter cli/commands/%,$(SOURCES))
COMMAND_OBJECTS := $(COMMAND:%.c=$(BUILD)/obj/%.o) $(BUILD)/obj/gen/report_files.o
REPORT_FILES := $(sort $(filter-out %.c %.h,$(wildcard cli/commands/report/report*)))
LIB_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(COMMAND),$(SOURCES))) \
               $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard codegen/*.cpp))
PROTOS := $(wildcard frontend/onnx/*.proto)
PROTO_C := $(PROTOS:%.proto=$(BUILD)/gen/%.pb-c.c)
PROTO_H := $(PROTO_C:.c=.h)
GEN_OBJECTS := $(PROTO_C:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o) $(BUILD)/obj/gen/rt_objects.o

# What goes into artifacts: everything in runtime/ except the host-side loader, and the folder of the operating system. The linker takes
# objects in this order.
RT_ARCHS := x86_64 aarch64 riscv64 aarch64-android x86_64-windows aarch64-windows x86_64-darwin aarch64-darwin
RT_SYSTEM_x86_64 := linux
RT_SYSTEM_aarch64 := linux
RT_SYSTEM_riscv64 := linux
RT_SYSTEM_aarch64-android := linux
RT_SYSTEM_x86_64-windows := windows
RT_SYSTEM_aarch64-windows := windows
RT_SYSTEM_x86_64-darwin := darwin
RT_SYSTEM_aarch64-darwin := darwin
RT_OBJECTS := $(foreach a,$(RT_ARCHS),$(addprefix $(BUILD)/rt/$a/,$(patsubst %.c,%.o,\
    $(sort $(notdir $(wildcard runtime/rt_*.c runtime/$(RT_SYSTEM_$a)/*.c))) $(patsubst runtime/%,%,$(wildcard runtime/ops/*.c)))))
RT_FLAGS_x86_64 := -fPIC --target=x86_64-unknown-linux-gnu -march=x86-64
RT_FLAGS_aarch64 := -fPIC --target=aarch64-unknown-linux-gnu -mno-outline-atomics
RT_FLAGS_aarch64-android := -fPIC --target=aarch64-unknown-linux-android28 -mno-outline-atomics
RT_FLAGS_x86_64-windows := --target=x86_64-pc-windows-msvc -march=x86-64
RT_FLAGS_aarch64-windows := --target=aarch64-pc-windows-msvc -mno-outline-atomics
RT_FLAGS_x86_64-darwin := -fPIC --target=x86_64-apple-macosx11 -march=x86-64
RT_FLAGS_aarch64-darwin := -fPIC --target=aarch64-apple-macosx11 -march=armv8-a
RT_FLAGS_riscv64 := -fPIC --target=riscv64-unknown-linux-gnu -march=rv64gc -mabi=lp64d
# No stack protector and no builtin turning loops into libc calls that the allow-list lacks; a section per function.
RT_FLAGS := -std=c11 -O2 -ffreestanding -fvisibility=hidden -ffunction-sections -fdata-sections \
            -fno-stack-protector -fasynchronous-unwind-tables -ffp-contract=off -I. -Iruntime \
            -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Werror

TEST_SOURCES := $(wildcard tests/*/test_*.c)
TESTS := $(TEST_SOURCES:%.c=$(BUILD)/%)
TEST_HELPERS := $(filter-out $(TEST_SOURCES),$(wildcard tests/*/*.c))
TEST_LIBRARY := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/interp/*.c) $(filter-out $(TEST_SOURCES),$(wildcard tests/text/*.c)))

# ---- products ---------------------------------------------------------------------------------------

PUBLIC_HEADERS := $(wildcard runtime/mcc.h runtime/mcc.hpp runtime/mcc_load.h runtime/mcc_load_file.h runtime/mcc_note.h cli/library/mccc.h)
.PHONY: all lib tests
all: $(BUILD)/mcc $(BUILD)/libmcc.a $(BUILD)/libmcc.so $(PUBLIC_HEADERS:%=$(BUILD)/include/.%)
lib: $(BUILD)/libmcc.a
tests: $(TESTS)

# A changed compiler or flag rebuilds everything: this file only changes when they do.
FLAGS_NOW := $(CC) $(CFLAGS_ALL) | $(CXX) $(CXXFLAGS_ALL) | $(CLANG) $(RT_FLAGS) $(foreach a,$(RT_ARCHS),$(RT_FLAGS_$a))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' >$@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | $(PROTO_H)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) $(if $(filter codegen/% tests/codegen/%,$<),-isystem $(LLVM_INCLUDE)) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(CXX) $(CXXFLAGS_ALL) -isystem $(LLVM_INCLUDE) -MMD -MP -c -o $@ $<

# Generated by protoc-c: not our text, so not our warnings. Its asserts name the file: the same one whatever BUILD is.
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -w -ffile-prefix-map=$(BUILD)/=build/ -MMD -MP -c -o $@ $<

$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: %.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)$(PROTOC_C) -I. --c_out=$(BUILD)/gen $<

# What runs once an opening, a shape or a launch that is shared is compiled for size: it is in every artifact.
RT_SMALL := rt_bind rt_ctx rt_cpu rt_dlpack rt_error rt_open rt_plan rt_pool rt_stride rt_threads rt_value rt_weights rt_run

define rt_rule
$(patsubst $2/%.c,$(BUILD)/rt/$1/%.o,$(wildcard $2/*.c $2/ops/*.c)): $(BUILD)/rt/$1/%.o: $2/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,RT,$$@)$(CLANG) $(RT_FLAGS_$1) $(RT_FLAGS) $$(if $$(filter $$*,$(RT_SMALL)),-Os) -MMD -MP -c -o $$@ $$<
endef
$(foreach a,$(RT_ARCHS),$(eval $(call rt_rule,$a,runtime))$(eval $(call rt_rule,$a,runtime/$(RT_SYSTEM_$a))))

# The runtime's objects as data (codegen/rt_objects.h).
$(BUILD)/gen/rt_objects.c: $(RT_OBJECTS) cli/embed.sh Makefile
	@mkdir -p $(@D)
	$(call say,EMBED,$@)sh cli/embed.sh $(BUILD)/rt $(RT_OBJECTS) >$@

# The files of a report's page as data (cli/commands/report/report.h).
$(BUILD)/gen/report_files.c: $(REPORT_FILES) cli/embed.sh Makefile
	@mkdir -p $(@D)
	$(call say,EMBED,$@)sh cli/embed.sh --report $(REPORT_FILES) >$@

$(BUILD)/libmcc.a: $(LIB_OBJECTS) $(GEN_OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar qcs $@ $^

# The command without its main, for tests.
$(BUILD)/commands.a: $(filter-out %/main.o,$(COMMAND_OBJECTS))
	$(call say,AR,$@)rm -f $@ && ar qcs $@ $^

# The command links LLVM statically and at a fixed address: the shared library's relocations cost every worker 15 ms
# and 25 MB. The instrumented builds and the library take the shared one.
$(BUILD)/mcc: $(COMMAND_OBJECTS) $(BUILD)/libmcc.a
	$(call say,LINK,$@)$(CXX) $(SAN) -o $@ $^ $(if $(SANITIZE),$(LIBS),-no-pie -Wl,--gc-sections -Wl,--build-id=sha1 $(BUILD)/obj/codegen/llvm_absent.o $(LIBS_STATIC)) $(LDFLAGS)

$(BUILD)/libmcc.so: $(LIB_OBJECTS) $(GEN_OBJECTS)
	$(call say,LINK,$@)$(CXX) -shared $(SAN) $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-soname,libmcc.so.1 -o $@ $^ $(LIBS) $(LDFLAGS)

$(BUILD)/include/.%: %
	@mkdir -p $(@D); cp $< $(BUILD)/include/; touch $@

# ---- tests --------------------------------------------------------------------------------------------

# The interpreter of the loop IR and the readers of graphs' and modules' texts, for every test.
$(BUILD)/tests.a: $(TEST_LIBRARY)
	$(call say,AR,$@)rm -f $@ && ar qcs $@ $^

# A test is one file, a program of its own; other .c files of its folder are helpers linked into each of them.
# (A function, because make would put the stem in place of a % that stands here.)
helpers_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter tests/$1/%,$(TEST_HELPERS)))
.SECONDEXPANSION:
$(TESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o \
          $$(call helpers_of,$$(*D)) $(BUILD)/tests.a $(BUILD)/commands.a $(BUILD)/libmcc.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CXX) $(SAN) -o $@ $^ $(LIBS) -lcmocka $(LDFLAGS)

# What runs kernels (of tests/codegen) and whole artifacts under qemu-user.
FOREIGN := kernels artifacts
FOREIGN_FLAGS := -fuse-ld=lld -std=gnu11 -O1 $(INCLUDE) $(WARN)
$(FOREIGN:%=$(BUILD)/tests/targets/%-aarch64): $(BUILD)/tests/targets/%-aarch64: tests/targets/%.c runtime/mcc_load.c $(wildcard runtime/*.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CLANG) --target=aarch64-linux-gnu $(FOREIGN_FLAGS) -o $@ $(filter %.c,$^) -ldl
$(BUILD)/tests/targets/artifacts-riscv64: tests/targets/artifacts.c runtime/mcc_load.c $(wildcard runtime/*.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CLANG) --target=riscv64-linux-gnu $(FOREIGN_FLAGS) -o $@ $(filter %.c,$^) -ldl
# The same for DLLs, by a loader of the tests.
$(BUILD)/tests/targets/artifacts-aarch64-windows: tests/targets/artifacts.c tests/targets/load_pe.c $(wildcard runtime/*.h codegen/container/*.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CLANG) --target=aarch64-linux-gnu $(FOREIGN_FLAGS) -o $@ $(filter %.c,$^) -lpthread
# And for libraries of macOS, by the loader for macOS on one of the tests.
DARWIN := $(BUILD)/tests/targets/artifacts-x86_64-macos $(BUILD)/tests/targets/artifacts-aarch64-macos
$(DARWIN): $(BUILD)/tests/targets/artifacts-%-macos: tests/targets/artifacts.c tests/targets/load_macho.c runtime/mcc_load_macos.c \
           $(wildcard runtime/*.h codegen/container/*.h) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CLANG) --target=$*-linux-gnu $(FOREIGN_FLAGS) -include tests/targets/load_macho.h -o $@ $(filter %.c,$^) -lpthread -ldl
.PHONY: foreign
foreign: $(FOREIGN:%=$(BUILD)/tests/targets/%-aarch64) $(BUILD)/tests/targets/artifacts-riscv64 $(BUILD)/tests/targets/artifacts-aarch64-windows $(DARWIN)
$(filter $(BUILD)/tests/codegen/%,$(TESTS)): | $(BUILD)/tests/targets/kernels-aarch64

# Python for the tests that need one: the ONNX suite's data and ONNX Runtime as a reference.
VENV ?= $(BUILD)/venv
PYTHON := $(VENV)/bin/python
$(BUILD)/venv/bin/pytest: tests/requirements.txt
	$(call say,VENV,$(BUILD)/venv)python3 -m venv $(BUILD)/venv && $(BUILD)/venv/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# Tests compile anew: what they ask of the cache they give a folder of their own.
TEST_ENV := MCC_CACHE=off MCC_BUILD=$(abspath $(BUILD)) MCC=$(abspath $(BUILD))/mcc PYTHONDONTWRITEBYTECODE=1

.PHONY: chart check check-unit check-real check-pt2 check-large same conformance fuzz-graphs fuzz-schedules bench bench-models bench-kernels bench-mca bench-forms bench-open bench-pt2 bench-threads bench-strict bench-int8 bench-error bench-choices bench-llm
# Ends with the line "N passed, N failed, N skipped". T=part: only the tests whose name holds it.
check: all tests foreign $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/run.py --build $(BUILD) $(if $(T),--name $(T)) $(TESTS)

# The C tests alone: no Python packages, no network. T=part as for check.
check-unit: all tests
	@$(TEST_ENV) python3 tests/run.py --build $(BUILD) --no-pytest $(if $(T),--name $(T)) $(TESTS)

# Compiler and C tests with address and undefined-behaviour checks, files made to be bad given to that compiler, and the
# runtime's tests with the thread checker. Builds beside $(BUILD).
RUNTIME_TESTS := $(addprefix tests/runtime/test_,api ops soak threads values)
.PHONY: check-sanitize
check-sanitize: $(VENV)/bin/pytest
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-thread SANITIZE=thread OPT="-O1 -g1" $(RUNTIME_TESTS:%=$(BUILD)-thread/%)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-address SANITIZE=address,undefined OPT="-O1 -g1" $(BUILD)-address/mcc tests
	@MCC_BUILD=$(abspath $(BUILD)-thread) python3 tests/run.py --build $(BUILD)-thread --no-pytest $(RUNTIME_TESTS:%=$(BUILD)-thread/%)
	@MCC_BUILD=$(abspath $(BUILD)-address) MCC=$(abspath $(BUILD)-address)/mcc PYTHONDONTWRITEBYTECODE=1 \
	    $(PYTHON) tests/run.py --build $(BUILD)-address --only tests/hostile $(TESTS:$(BUILD)/%=$(BUILD)-address/%)

# The runtime under callers, gaps, cancels and other work, for as long as MINUTES says.
MINUTES ?= 10
.PHONY: soak
soak: $(BUILD)/tests/runtime/test_soak
	@$< $$(( $(MINUTES) * 60 )) $(SEED)

# Every float through the vector functions, against libm's double: some minutes for each, two at a time.
MATH ?= exp log tanh sigmoid erf
.PHONY: check-math
check-math: $(BUILD)/tests/codegen/test_math
	@printf '%s\n' $(MATH) | xargs -P 2 -I OP $(BUILD)/tests/codegen/test_math --every OP

# TARGET=aarch64-linux-gnu: the listed cases under qemu-user, of x86_64-windows under Wine, of x86_64-macos by the tests' loader; EVERY=10: every
# tenth.
conformance: all $(VENV)/bin/pytest $(if $(TARGET),foreign)
	@$(TEST_ENV) $(PYTHON) tests/conformance/run.py $(if $(TARGET),--target=$(TARGET) $(if $(EVERY),--every=$(EVERY)), \
	    && $(TEST_ENV) $(PYTHON) tests/conformance/run.py --erased)

# What .github/workflows/windows.yml runs on real Windows: a fourth of the suite, and their answers on Linux.
.PHONY: windows-bundle
windows-bundle: all $(VENV)/bin/pytest foreign
	@for t in x86_64-windows aarch64-windows; do $(TEST_ENV) $(PYTHON) tests/targets/bundle.py $$t $(BUILD)/bundle/$$t $(EVERY) || exit 1; done

# The same for Macs (.github/workflows/macos.yml).
.PHONY: macos-bundle
macos-bundle: all $(VENV)/bin/pytest foreign
	@for t in x86_64-macos aarch64-macos; do $(TEST_ENV) $(PYTHON) tests/targets/bundle.py $$t $(BUILD)/bundle/$$t $(EVERY) || exit 1; done

# The ONNX suite as C source, every EVERY-th case, BITS=32: the bits of shared objects.
.PHONY: conformance-c
conformance-c: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/conformance/c_source.py $(if $(BITS),--bits=$(BITS)) $(if $(EVERY),--every=$(EVERY))

# Coverage-guided fuzzing with the sanitizers (tests/fuzz/targets): SECONDS_EACH, on CORPUS_DIR/NAME, which grows. Findings are files
# crash-*, timeout-*, oom-* in $(BUILD)-fuzz/findings; a build of its own, by clang.
SECONDS_EACH ?= 600
CORPUS_DIR ?= $(BUILD)-fuzz/corpus
FUZZERS := model pt2 gguf config so npy
FUZZ_MAKE = $(MAKE) --no-print-directory BUILD=$(BUILD)-fuzz CC=$(CLANG) CXX=$(CLANG:clang%=clang++%) \
    SANITIZE=fuzzer-no-link,address,undefined OPT="-O1 -g1" CFLAGS=-fno-sanitize=pointer-overflow # which minds NULL + 0
FUZZ_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(wildcard tests/fuzz/targets/fuzz_*.c),$(wildcard tests/fuzz/targets/*.c)))
.PHONY: $(FUZZERS:%=fuzz-%)
$(FUZZERS:%=fuzz-%): fuzz-%: deps-fuzz all $(VENV)/bin/pytest
	@$(FUZZ_MAKE) $(BUILD)-fuzz/fuzz_$*
	@mkdir -p $(BUILD)-fuzz/findings $(CORPUS_DIR)/$*
	@$(TEST_ENV) $(PYTHON) tests/fuzz/targets/corpus.py $* $(CORPUS_DIR)/$*
	$(BUILD)-fuzz/fuzz_$* -max_total_time=$(SECONDS_EACH) -timeout=30 -rss_limit_mb=3072 -max_len=65536 -print_final_stats=1 \
	    $(addprefix -dict=,$(wildcard tests/fuzz/targets/$*.dict)) -artifact_prefix=$(BUILD)-fuzz/findings/$*- $(CORPUS_DIR)/$*
.SECONDARY: $(FUZZ_OBJECTS) $(FUZZERS:%=$(BUILD)/obj/tests/fuzz/targets/fuzz_%.o)
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/targets/fuzz_%.o $(FUZZ_OBJECTS) $(BUILD)/tests.a $(BUILD)/commands.a $(BUILD)/libmcc.a
	$(call say,LINK,$@)$(CXX) -fsanitize=fuzzer,address,undefined -o $@ $^ $(LIBS) $(LDFLAGS)

# Changed jobs for workers in their sandbox, with the sanitizers, leaks off (tests/fuzz/worker.py). Findings stay in $(BUILD)-address/findings.
.PHONY: fuzz-worker
fuzz-worker: $(VENV)/bin/pytest
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-address SANITIZE=address,undefined OPT="-O1 -g1" $(BUILD)-address/mcc
	@MCC_BUILD=$(abspath $(BUILD)-address) MCC=$(abspath $(BUILD)-address)/mcc PYTHONDONTWRITEBYTECODE=1 \
	    $(PYTHON) tests/fuzz/worker.py $(SECONDS_EACH) $(SEED)

# Failing calls and allocations, DRAWS of each kind (tests/torture).
DRAWS ?= 2000
.PHONY: torture
torture: all $(BUILD)/tests/torture/test_library $(VENV)/bin/pytest
	@$(TEST_ENV) MCC_DRAWS=$(DRAWS) $(PYTHON) tests/run.py --build $(BUILD) --only tests/torture $(BUILD)/tests/torture/test_library

# Which lines and branches the tests reach: make check and the suite with an instrumented build; counters are files that processes map,
# so that workers which are stopped, or may write nothing, count too.
COVERAGE := -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation
COVERAGE_BUILD := $(BUILD)-coverage
COVERAGE_MAKE := $(MAKE) --no-print-directory BUILD=$(COVERAGE_BUILD) CC=$(CLANG) CXX=$(CLANG:clang%=clang++%) OPT="-O1 -g1" \
    CFLAGS="$(COVERAGE)" CXXFLAGS="$(COVERAGE)" LDFLAGS=-fprofile-instr-generate VENV=$(VENV)
.PHONY: coverage
coverage: deps-fuzz $(VENV)/bin/pytest
	@$(COVERAGE_MAKE) all tests foreign
	@rm -rf $(COVERAGE_BUILD)/raw
	-@LLVM_PROFILE_FILE=$(abspath $(COVERAGE_BUILD))/raw/%c%8m.profraw $(COVERAGE_MAKE) -k check conformance
	@$(PYTHON) tests/coverage.py $(COVERAGE_BUILD)

check-real: all $(VENV)/bin/pytest
	@$(TEST_ENV) TORCH=$(TORCH) $(PYTHON) tests/real/run.py

# Networks of PyTorch's packages as .pt2 beside PyTorch in f64. TORCH: a Python that has them; NETS="timm.lcnet_035 diffusers";
# RESULTS=FILE: appends to it, and leaves out what is there already.
check-pt2: all
	@$(TEST_ENV) RESULTS=$(RESULTS) $(or $(TORCH),python3) tests/real/pt2.py $(NETS)

# Are the artifacts those of another commit, byte for byte? For what must not change code: moves, renames, refactorings.
BASE ?= origin/main
same: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/same/run.py $(BASE) $(NETS)

check-large: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/large/run.py

$(BUILD)/tests/bench/calls: tests/bench/calls.c runtime/mcc_load.c $(wildcard runtime/*.h)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(CFLAGS_ALL) -o $@ $(filter %.c,$^) -ldl

$(BUILD)/tests/bench/peaks: tests/bench/peaks.c
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(CFLAGS_ALL) -o $@ $<

# Every micro-kernel alone, against this machine's limits; KERNELS="GEMM 3x3" names parts of them.
bench-kernels: all $(BUILD)/tests/bench/peaks $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/kernels.py $(KERNELS)

# The inner loops of AArch64's micro-kernels in LLVM's models of its cores (llvm-mca-19); KERNELS="bf16 a55" names parts of them.
bench-mca: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/mca.py $(KERNELS)

# Single forms beside ONNX Runtime, in processor time; FORMS="transpose lstm" names parts of them.
bench-forms: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/forms.py $(FORMS)

# Open sizes beside fixed ones and ONNX Runtime: the networks of build/nets and others, exported by packages that live in a folder of their
# own, or that OPEN_PYTHON has. NETS="bert gpt" names parts of them; COUNTS=1: nothing runs.
OPEN_PYTHON ?= $(BUILD)/open/bin/python
bench-open: all $(VENV)/bin/pytest $(if $(filter $(BUILD)/%,$(OPEN_PYTHON)),$(BUILD)/open/done)
	@$(TEST_ENV) $(PYTHON) tests/bench/open.py --python $(OPEN_PYTHON) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(COUNTS),--counts) $(NETS)
$(BUILD)/open/done: tests/bench/open_requirements.txt $(VENV)/bin/pytest
	$(call say,VENV,$(BUILD)/open)rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# .pt2 files beside the same programs by way of ONNX: time of a run, of compilation, kernels; TORCH: a Python that has torch, onnxscript and
# the packages; NETS="torch timm.lcnet_035", FORM=batch.
bench-pt2: all
	@$(TEST_ENV) $(TORCH) tests/bench/pt2_beside_onnx.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FORM),--form $(FORM)) $(NETS)

# Does the bound of --error hold on unseen samples of trained networks, and what does it cost in accuracy? NETS="digits rec" SPLITS=20. The
# networks are those of packages of PyPI; ERROR_PYTHON has tests/requirements.txt and Pillow.
ERROR_PYTHON ?= $(BUILD)/error/bin/python
bench-error: all $(VENV)/bin/pytest $(if $(filter $(BUILD)/%,$(ERROR_PYTHON)),$(BUILD)/error/done)
	@$(TEST_ENV) $(ERROR_PYTHON) tests/bench/kept.py --verbose $(if $(SPLITS),--splits $(SPLITS)) $(NETS)
$(BUILD)/error/done: tests/requirements.txt $(VENV)/bin/pytest
	$(call say,VENV,$(BUILD)/error)rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check -r $< pillow==12.0.0
	@touch $@

# What --error gains on the 14 networks over ONNX Runtime in f32, and over PEERS=nncf,neural-compressor at their error; PRUNED=1
# PEERS=deepsparse: networks of which 90 % of the weights are zeros. Each peer lives in a folder of its own.
CHOICES_FOLDERS := nncf:peers neural-compressor:compressor deepsparse:deepsparse
CHOICES_NEED = $(foreach p,$(subst $(comma), ,$(PEERS)),$(patsubst $p:%,$(BUILD)/%/done,$(filter $p:%,$(CHOICES_FOLDERS))))
bench-choices: all $(VENV)/bin/pytest $(CHOICES_NEED)
	@$(TEST_ENV) $(PYTHON) tests/bench/chosen.py $(if $(PRUNED),--pruned) $(if $(PEERS),--peers $(PEERS) $(foreach f,peers compressor deepsparse,\
	    --$f-python $(BUILD)/$f/bin/python)) $(if $(ERROR),--error $(ERROR)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(NETS)
$(BUILD)/compressor/done $(BUILD)/deepsparse/done: $(BUILD)/%/done: tests/bench/%_requirements.txt $(VENV)/bin/pytest
	$(call say,VENV,$(@D))rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# Quantized networks beside ONNX Runtime, in processor time; NETS="resnet50", QUANTIZED=qdq,qop,dynamic.
bench-int8: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/int8.py --threads $(THREADS) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	    $(if $(QUANTIZED),--forms $(QUANTIZED)) $(NETS)

# Language models beside ONNX Runtime: SHAPES=smollm2-135m,qwen2.5-0.5b FORMS=f32,int4,int4-exact,bf16 LAYERS=6 THREADS=1,2 PAST=128,1024
# PREFILL=128,512 ROWS=shape,speculation,gguf. PEERS=genai,llama.cpp,OpenVINO take part from a folder of their own, or with PEER_PYTHON, which has them.
PEER_PYTHON ?= $(BUILD)/llm-peers/bin/python
bench-llm: all $(VENV)/bin/pytest $(if $(PEERS),$(if $(filter $(BUILD)/%,$(PEER_PYTHON)),$(BUILD)/llm-peers/done))
	@$(TEST_ENV) $(PYTHON) tests/bench/llm.py --threads $(THREADS) $(if $(SHAPES),--shapes $(SHAPES)) $(if $(FORMS),--forms $(FORMS)) \
	    $(if $(LAYERS),--layers $(LAYERS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(PAST),--past $(PAST)) $(if $(PREFILL),--prefill $(PREFILL)) \
	    $(if $(PEERS),--peers $(PEERS) --peer-python $(PEER_PYTHON))
	@$(TEST_ENV) $(PYTHON) tests/bench/llm_rows.py --threads $(THREADS) $(if $(SHAPES),--shapes $(SHAPES)) $(if $(LAYERS),--layers $(LAYERS)) \
	    $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(ROWS),--rows $(ROWS))

# llama.cpp is built for this CPU, which takes half an hour; on CPUs with AMX for AVX-512: its AMX code fails (llama.cpp's issue 20824).
LLAMA_CPU = $(if $(shell grep -m1 -o amx_int8 /proc/cpuinfo),-DGGML_NATIVE=OFF $(foreach part,AVX512 AVX512_VBMI AVX512_VNNI AVX512_BF16,-DGGML_$(part)=ON),-DGGML_NATIVE=ON)
LLAMA_OPTIONS = $(LLAMA_CPU) -DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF $(foreach part,TOOLS TESTS EXAMPLES SERVER,-DLLAMA_BUILD_$(part)=OFF)
$(BUILD)/llm-peers/done: tests/bench/llm_requirements.txt $(VENV)/bin/pytest
	$(call say,VENV,$(BUILD)/llm-peers)rm -rf $(@D) && $(PYTHON) -m venv $(@D) && CMAKE_ARGS="$(LLAMA_OPTIONS)" \
	    $(@D)/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt -r $<
	@touch $@

# Peers beside ONNX Runtime live in a folder of their own: PEERS=openvino,ncnn,MNN. aoti, AOTInductor, needs g++ and TORCH: a Python that
# has torch and torchvision.
$(BUILD)/peers/done: tests/bench/requirements.txt $(VENV)/bin/pytest
	$(call say,VENV,$(BUILD)/peers)rm -rf $(@D) && $(PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check \
	    -r tests/requirements.txt -r $< && $(@D)/bin/pip install -q --disable-pip-version-check --no-deps pnnx==20261020
	@touch $@

THREADS ?= 1
ifdef CALLERS
bench: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/callers.py --callers $(CALLERS) $(if $(ROUNDS),--rounds $(ROUNDS)) $(NETS)
else
bench: all $(BUILD)/tests/bench/calls $(VENV)/bin/pytest $(if $(filter-out aoti,$(subst $(comma), ,$(PEERS))),$(BUILD)/peers/done)
	@$(TEST_ENV) $(PYTHON) tests/bench/calls.py; calls=$$?; \
	$(TEST_ENV) $(PYTHON) tests/bench/run.py --threads $(THREADS) \
	    $(if $(PEERS),--peers $(PEERS) --peer-python $(BUILD)/peers/bin/python --torch-python $(TORCH)) $(if $(COMPETITOR),--competitor) $(if $(UNGATED),--ungated) \
	    $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(BATCH),--batch $(BATCH)) $(if $(GAP),--gap $(GAP)) \
	    $(if $(PRECISION),--precision $(PRECISION)) $(if $(RESULTS),--results $(RESULTS)) $(NETS) && exit $$calls
endif

# What mcc inspect --threads says of two threads beside what they take; NETS="resnet50 bert", ROUNDS=9.
bench-threads: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/threads.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(NETS)

# Processor time with --strict over that without; NETS="resnet50 bert", ROUNDS=9.
bench-strict: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/strict.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(NETS)

# DLLs under Wine beside shared objects: processor time in turns, with one thread and two.
.PHONY: bench-windows
bench-windows: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/windows.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(or $(NETS),$(wildcard $(BUILD)/nets/*.onnx))

# The README's picture of what make bench RESULTS=docs/ratios.json has measured; matplotlib from PyPI.
chart: $(BUILD)/chart/done
	@$(BUILD)/chart/bin/python tests/bench/chart.py docs/ratios.json docs/ratios.svg
$(BUILD)/chart/done:
	$(call say,VENV,$(@D))rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check matplotlib==3.10.3
	@touch $@

# The collection beside the project (../shared/models), a line each, in processor time; MODELS="audio rnn" names parts of it.
bench-models: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/bench/models.py $(MODELS)

N ?= 20000
SEED ?= 1
fuzz-graphs: all $(BUILD)/tests/fuzz/test_graphs
	@$(TEST_ENV) $(BUILD)/tests/fuzz/test_graphs $(N) $(SEED)
	@$(TEST_ENV) $(BUILD)/tests/fuzz/test_graphs $$(( ($(N) + 9) / 10 )) $(SEED) --native

# Records of schedules with other numbers: refused by a field's name, or their loops compute what the interpreter does.
fuzz-schedules: all $(BUILD)/tests/fuzz/test_schedules
	@$(TEST_ENV) $(BUILD)/tests/fuzz/test_schedules $(N) $(SEED)
	@$(TEST_ENV) $(BUILD)/tests/fuzz/test_schedules $$(( ($(N) + 99) / 100 )) $(SEED) --native

# What must not matter: networks that are proved, in the field of mcc prove, in other forms (options, schedules, CPUs, equal networks); the same bits.
# RESULTS=FILE: goes on where it ended, up to N forms in all.
.PHONY: fuzz-exact
fuzz-exact: all $(VENV)/bin/pytest
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m fuzz.exact $(N) $(SEED) $(if $(ONLY),--only $(ONLY)) $(if $(RESULTS),--results $(RESULTS))

# What mcc prove proves, counted by reason: the ONNX suite, every EVERY-th case, networks of $(BUILD)/nets and $(BUILD)/int8, of check-real, language models.
# NETS="suite f32 int8 real llm": these lists; RESULTS=FILE: goes on where it ended; UPDATE=1 writes tests/prove/proved.txt.
.PHONY: prove
prove: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/prove/run.py $(if $(EVERY),--every=$(EVERY)) $(if $(RESULTS),--results=$(RESULTS)) $(if $(UPDATE),--update) $(NETS)

# Networks compiled with --strict on all CPUs that are here or emulated: N random ones, or those of NETS (files, and suite f32 int8 llm as above;
# of the suite every EVERY-th case). ROWS=1,2,16 CPUS=v3,dotprod: these; HASHES=FILE: results are the same bits as in the run before.
.PHONY: strict
strict: N := 200
strict: all foreign $(VENV)/bin/pytest
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m fuzz.strict $(N) $(SEED) $(if $(EVERY),--every $(EVERY)) $(if $(ROWS),--rows $(ROWS)) \
	    $(if $(CPUS),--cpus $(CPUS)) $(if $(HASHES),--hashes $(HASHES)) $(NETS)

# Changes of the compiler, each alone, where small networks reach it: mcc prove has to reject those that compute wrong results. N are drawn
# from number SEED on; FOLDER=passes/emit: there. Before them those that the log knows. All are in one compiler, made by libclang; its sites are
# not those of another commit.
.PHONY: mutants
mutants: N := 1000
mutants: $(BUILD)/mutants/sites.json $(VENV)/bin/pytest
	@$(TEST_ENV) CC="$(CC)" CXX="$(CXX)" PYTHONPATH=tests $(PYTHON) -m mutants.past
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m mutants.run $(N) $(SEED) $(if $(FOLDER),--folder $(FOLDER))
$(BUILD)/mutants/sites.json: $(BUILD)/mcc $(wildcard tests/mutants/mutant.* tests/mutants/build.py tests/mutants/rewrite.py) $(BUILD)/mutants/venv/done
	@MCC_BUILD=$(abspath $(BUILD)) CC="$(CC)" CXX="$(CXX)" $(BUILD)/mutants/venv/bin/python tests/mutants/build.py
$(BUILD)/mutants/venv/done:
	$(call say,VENV,$(@D))rm -rf $(@D) && python3 -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check libclang==18.1.1
	@touch $@

# Random ONNX networks beside ONNX Runtime; what disagrees is reduced and written to $(BUILD)/fuzz-ort. ONLY="Conv Relu": these alone;
# "contrib", "large": families.
fuzz-ort: all $(VENV)/bin/pytest
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m fuzz.ort.main $(N) $(SEED) $(if $(ONLY),--only $(ONLY))

# Random ONNX networks on hostile inputs: a run may fail, but ends and touches no memory that is not its own.
fuzz-hostile: all $(VENV)/bin/pytest
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m fuzz.ort.hostile $(N) $(SEED) $(ONLY)

# Drawn calls of PyTorch's operators, exported and compared with eager PyTorch; TORCH: a Python that has torch and ml_dtypes. What
# differs is in $(BUILD)/fuzz-aten.
.PHONY: fuzz-aten
TORCH ?= python3
fuzz-aten: all
	@$(TEST_ENV) PYTHONPATH=tests $(TORCH) -m pt2.fuzz $(N) $(SEED) $(if $(ONLY),--only $(ONLY))

# Processor time and memory in proportion to the input, for each construct that can be repeated. ONLY="chain fan": these alone.
.PHONY: scaling
scaling: all $(VENV)/bin/pytest
	@$(TEST_ENV) $(PYTHON) tests/scaling/run.py $(ONLY)

# Long chains of computations on sizes: mcc ends with a verdict, soon and in little memory. What does not is in $(BUILD)/fuzz-chains.
fuzz-chains: all $(VENV)/bin/pytest
	@$(TEST_ENV) PYTHONPATH=tests $(PYTHON) -m fuzz.ort.chains $(N) $(SEED)

# Clang's warnings beside gcc's: a stamp for each file that has none, so that only what has changed is looked at again.
# Files for Windows and macOS need their headers or options: the runtime's build and the tests compile them with the same warnings.
LINT_FLAGS := -std=c11 -D_GNU_SOURCE -fsyntax-only $(INCLUDE) -isystem $(LLVM_INCLUDE) $(WARN)
LINT_STAMPS = $(patsubst %,$(BUILD)/lint/%.ok,$(sort $(shell find ir passes frontend codegen cli runtime tests -name '*.[ch]' ! -path '*windows*' ! -path '*darwin*')))
.PHONY: lint lint-clang format
lint: $(PROTO_H)
	@python3 tests/lint.py
	@$(MAKE) --no-print-directory -k -j$$(nproc) lint-clang
lint-clang: $(LINT_STAMPS)
$(BUILD)/lint/%.ok: % $(BUILD)/flags | $(PROTO_H)
	@mkdir -p $(@D)
	@$(CLANG) $(LINT_FLAGS) $(if $(filter %.h,$<),-x c-header -Wno-unused-function -Wno-undefined-internal) -MMD -MP -MF $(@:.ok=.d) -MT $@ $< && touch $@

format:
	@python3 tests/lint.py --fix

# ---- the demo --------------------------------------------------------------------------------------------

.PHONY: demo demo-run
demo: deps
	@$(MAKE) --no-print-directory BUILD=$(BUILD) all
	@$(MAKE) --no-print-directory BUILD=$(BUILD) demo-run

demo-run: all
	@$(MAKE) --no-print-directory -C examples/digits BUILD=$(abspath $(BUILD))/demo MCC_BUILD=$(abspath $(BUILD)) run

# ---- what Debian 12 must have ------------------------------------------------------------------------------

DEPS := gcc g++ make binutils clang-19 clang-format-19 llvm-19-dev liblld-19-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev \
        libxxhash-dev zlib1g-dev libzstd-dev libcmocka-dev libjansson-dev libmicrohttpd-dev python3 python3-venv
DEPS_CROSS := lld-19 qemu-user libc6-dev-arm64-cross libgcc-12-dev-arm64-cross libc6-dev-riscv64-cross \
        libgcc-12-dev-riscv64-cross
DEPS_FUZZ := libclang-rt-19-dev
DEPS_BENCH := python3-torch python3-torchvision
DEPS_PLATFORMS := wine64 gcc-mingw-w64-x86-64-win32 g++-mingw-w64-x86-64-win32 qemu-system-arm qemu-system-misc \
    gcc-arm-none-eabi gcc-riscv64-unknown-elf gcc-multilib nodejs chromium
DEPS_HOSTED := buildah debootstrap python3-yaml git
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: deps deps-check deps-bench deps-fuzz deps-platforms deps-hosted
# $(call apt,PACKAGES): installs what is missing; nothing missing needs no network.
apt = @missing=$$(for p in $1; do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
      if [ -n "$$missing" ]; then \
          echo "installing:" $$missing; \
          { $(SUDO) apt-get install -y -q --no-install-recommends $$missing || \
            { $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q --no-install-recommends $$missing; }; } \
          >$(BUILD)/apt.log 2>&1 || { tail -n 20 $(BUILD)/apt.log; exit 1; }; \
      fi
deps:
	@mkdir -p $(BUILD)
	$(call apt,$(DEPS) $(DEPS_CROSS))
deps-fuzz: deps
	$(call apt,$(DEPS_FUZZ))
deps-bench: deps
	$(call apt,$(DEPS_BENCH))
deps-platforms: deps
	$(call apt,$(DEPS_PLATFORMS))
deps-hosted:
	@mkdir -p $(BUILD)
	$(call apt,$(DEPS_HOSTED))

# ---- installation --------------------------------------------------------------------------------------------

VERSION = $(shell sed -n 's/^.define MCCC_VERSION "\(.*\)"/\1/p' cli/library/mccc.h)

.PHONY: install
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/mcc
	install -m 755 $(BUILD)/mcc $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/libmcc.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(BUILD)/libmcc.so $(DESTDIR)$(PREFIX)/lib/libmcc.so.1
	ln -sf libmcc.so.1 $(DESTDIR)$(PREFIX)/lib/libmcc.so
	install -m 644 $(PUBLIC_HEADERS) $(DESTDIR)$(PREFIX)/include/
	install -m 644 runtime/mcc_load.c runtime/mcc_load_windows.c runtime/mcc_load_macos.c cli/package/mcc_load.cpp runtime/mcc.py runtime/mcc.mjs runtime/mcc.d.mts runtime/mcc_threads.mjs runtime/mcc_threads.d.mts \
	    $(DESTDIR)$(PREFIX)/share/mcc/
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/lib/cmake/mcc
	sed 's|@VERSION@|$(VERSION)|' cli/package/mcc.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/mcc.pc
	install -m 644 cli/package/mcc-config.cmake $(DESTDIR)$(PREFIX)/lib/cmake/mcc/
	sed 's|@VERSION@|$(VERSION)|' cli/package/mcc-config-version.cmake.in >$(DESTDIR)$(PREFIX)/lib/cmake/mcc/mcc-config-version.cmake
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 man/man3 man/man5 bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	$(BUILD)/mcc --generate=mcc.1 >$(DESTDIR)$(PREFIX)/share/man/man1/mcc.1
	$(BUILD)/mcc --generate=mcc.yaml.5 >$(DESTDIR)$(PREFIX)/share/man/man5/mcc.yaml.5
	install -m 644 docs/mcc_model.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/doc/mcc/,notes reference)
	install -m 644 docs/*.md docs/json.schema.json $(DESTDIR)$(PREFIX)/share/doc/mcc/
	install -m 644 docs/notes/*.md $(DESTDIR)$(PREFIX)/share/doc/mcc/notes/
	install -m 644 docs/reference/*.md $(DESTDIR)$(PREFIX)/share/doc/mcc/reference/
	$(BUILD)/mcc --generate=bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/mcc
	$(BUILD)/mcc --generate=zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_mcc
	$(BUILD)/mcc --generate=fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/mcc.fish

# What install puts there, and the folders that are mcc's alone; PREFIX and DESTDIR as they were for install.
SHARED := mcc/mcc_load.c mcc/mcc_load_windows.c mcc/mcc_load_macos.c mcc/mcc_load.cpp mcc/mcc.py mcc/mcc.mjs mcc/mcc.d.mts mcc/mcc_threads.mjs mcc/mcc_threads.d.mts man/man1/mcc.1 man/man5/mcc.yaml.5 man/man3/mcc_model.3 \
          bash-completion/completions/mcc zsh/site-functions/_mcc fish/vendor_completions.d/mcc.fish
.PHONY: uninstall
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/mcc lib/libmcc.a lib/libmcc.so.1 lib/libmcc.so lib/pkgconfig/mcc.pc \
	    $(patsubst %,include/%,$(notdir $(PUBLIC_HEADERS))) $(addprefix share/,$(SHARED)))
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,lib/cmake/mcc share/mcc share/doc/mcc)

# ---- packages -------------------------------------------------------------------------------------------------

# The command with everything inside, libc too: it runs on any Linux of its architecture, whatever libc that has. What it names of
# glibc that only works with a libc beside it, home folders and the like, LLVM asks and mcc does not.
# DIST_ARCH=aarch64 makes them for hosts of that architecture, with clang, lld and Debian's packages for it, unpacked in a folder.
THIS_ARCH := $(shell uname -m)
DIST_ARCH := $(THIS_ARCH)
DIST_OTHER := $(filter-out $(THIS_ARCH),$(DIST_ARCH))
DIST := $(BUILD)/dist$(DIST_OTHER:%=-%)
DIST_NAME = mcc-$(VERSION)-$(DIST_ARCH)-linux
DEB_ARCH := $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(DIST_ARCH)))
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH
$(BUILD)/mcc-static: $(COMMAND_OBJECTS) $(BUILD)/libmcc.a
	$(call say,LINK,$@)$(CXX) -o $@ $^ -static -Wl,--gc-sections -Wl,--build-id=none -Wl,--no-warnings -s \
	    $(BUILD)/obj/codegen/llvm_absent.o $(LIBS_STATIC) $(LDFLAGS)

ifeq ($(DIST_OTHER),)
$(DIST)/mcc: $(BUILD)/mcc-static
	@mkdir -p $(@D) && cp $< $@
else
SYSROOT := $(DIST)/sysroot
SYSROOT_PACKAGES := libc6 libc6-dev linux-libc-dev libcrypt-dev libgcc-12-dev libgcc-s1 libstdc++-12-dev llvm-19-dev liblld-19-dev \
                    liblld-19 libprotobuf-c-dev libyaml-dev libxxhash-dev zlib1g-dev libzstd-dev
CROSS := --target=$(DIST_ARCH)-linux-gnu --sysroot=$(abspath $(SYSROOT))
$(SYSROOT)/done: cli/package/sysroot.sh
	$(call say,FETCH,$(@D))sh $< $(@D) $(DEB_ARCH) $(SYSROOT_PACKAGES) && touch $@
$(DIST)/mcc: $(SYSROOT)/done FORCE
	@$(MAKE) --no-print-directory BUILD=$(DIST)/build DIST_ARCH=$(THIS_ARCH) CC="$(CLANG) $(CROSS)" CXX="$(CLANG:clang%=clang++%) $(CROSS)" \
	    LLVM_INCLUDE=$(SYSROOT)$(LLVM_INCLUDE) LLVM_LIBDIR=$(SYSROOT)$(LLVM_LIBDIR) \
	    LDFLAGS="-fuse-ld=lld $(LDFLAGS)" $(DIST)/build/mcc-static
	@cmp -s $(DIST)/build/mcc-static $@ || cp $(DIST)/build/mcc-static $@
endif

# An installed tree, of which the tarball, the wheel and the .deb are made. The library needs LLVM to be linked with, so it is not there.
$(DIST)/tree/done: $(DIST)/mcc $(BUILD)/libmcc.so $(PUBLIC_HEADERS) $(wildcard runtime/mcc*.c runtime/mcc.py runtime/mcc.mjs runtime/mcc.d.mts runtime/mcc_threads.mjs runtime/mcc_threads.d.mts cli/package/* docs/*.md docs/notes/*.md docs/reference/*.md docs/json.schema.json) LICENSE
	$(call say,TREE,$(@D))rm -rf $(@D)
	@$(MAKE) --no-print-directory install DESTDIR=$(abspath $(@D)) PREFIX=/usr >/dev/null
	@cp $(DIST)/mcc $(@D)/usr/bin/mcc && rm -f $(@D)/usr/lib/libmcc.* $(@D)/usr/include/mccc.h && cp LICENSE $(@D)/usr/share/doc/mcc/
	@find $(@D) -exec touch -hd @$(SOURCE_DATE_EPOCH) {} + && touch $@

TARBALL = $(DIST)/$(DIST_NAME).tar.xz
WHEEL = $(DIST)/mcc-$(VERSION)-py3-none-manylinux2014_$(DIST_ARCH).musllinux_1_1_$(DIST_ARCH).whl
DEB = $(DIST)/mcc_$(VERSION)_$(DEB_ARCH).deb
.PHONY: dist check-dist dist-tarball dist-wheel dist-deb
dist: dist-tarball dist-wheel dist-deb
	@cd $(DIST) && sha256sum $(notdir $(TARBALL) $(WHEEL) $(DEB)) | tee SHA256SUMS
dist-tarball: $(DIST)/tree/done
	@cd $(DIST)/tree && tar --sort=name --mtime=@$(SOURCE_DATE_EPOCH) --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r-w \
	    --transform 's,^usr,$(DIST_NAME),' -cf - usr | xz -6 -T1 >../$(notdir $(TARBALL))
dist-wheel: $(DIST)/tree/done
	@python3 cli/package/wheel.py $(DIST)/tree/usr $(VERSION) $(DIST_ARCH) $(DIST) >/dev/null
dist-deb: $(DIST)/tree/done
	@rm -rf $(DIST)/deb && mkdir -p $(DIST)/deb/DEBIAN && cp -a $(DIST)/tree/usr $(DIST)/deb/
	@sed 's|@VERSION@|$(VERSION)|; s|@ARCH@|$(DEB_ARCH)|' cli/package/control.in >$(DIST)/deb/DEBIAN/control
	@dpkg-deb --root-owner-group -Zxz -z6 --build $(DIST)/deb $(DEB) >/dev/null && rm -rf $(DIST)/deb

# Each package installed and used where nothing else is: pip in a fresh venv, dpkg in a bare Debian, the tarball without any libc. All
# are built a second time, in another folder, and must be the same bytes.
check-dist: dist $(VENV)/bin/pytest
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/again dist >/dev/null
	@$(TEST_ENV) $(PYTHON) tests/dist/run.py $(DIST) $(BUILD)/again/$(notdir $(DIST)) $(DIST_ARCH)

# The Dockerfile and the jobs of .github/workflows, carried out in a bare Debian 12 from a clean clone; JOB="image dist": these alone.
.PHONY: check-hosted
check-hosted: deps-hosted
	@python3 tests/dist/hosted.py $(BUILD)/hosted $(JOB)

# ---- help -----------------------------------------------------------------------------------------------------

.PHONY: help
help:
	@echo 'make               build/mcc, libmcc.a, libmcc.so, include/'
	@echo 'make deps          apt packages that building and checking need (sudo when not root)'
	@echo 'make demo          deps, build, compile examples/digits and run it on pictures it never saw'
	@echo 'make check         every test; the last line is "N passed, N failed, N skipped"; T=pool: only those named so'
	@echo 'make check-unit    the C tests alone'
	@echo 'make check-sanitize  C tests and bad files under ASan and UBSan, the runtime under TSan'
	@echo 'make check-math    every float through exp, log, tanh, sigmoid, erf against their stated bounds'
	@echo 'make conformance   the ONNX 1.22.0 suite as it is and with the shapes erased, counts by reason'
	@echo 'make check-real    real networks against ONNX Runtime (needs make deps-bench for the exports)'
	@echo 'make check-pt2     TORCH=python NETS="names": networks or packages (timm, ...) as .pt2 against PyTorch in f64'
	@echo 'make soak MINUTES=10  the runtime under callers, gaps, cancels and a competitor; byte for byte, without a leak'
	@echo 'make check-large   past 2 and 4 GiB of weights, ConvNeXt-base (15 GB of disk, make deps-bench)'
	@echo 'make fuzz-model    also fuzz-pt2, fuzz-gguf, fuzz-config, fuzz-so, fuzz-npy: libFuzzer with sanitizers; SECONDS_EACH=600 CORPUS_DIR=dir'
	@echo 'make coverage      the lines and branches that make check and the suite reach, by folder'
	@echo 'make torture       DRAWS=2000: failing system calls and allocations, that many of each kind'
	@echo 'make same          BASE=commit: the artifacts of both trees compared byte for byte; NETS="resnet50 bert"'
	@echo 'make fuzz-graphs   N=20000 SEED=1 random graphs: -O0, -O2 and the interpreter agree; every tenth compiled too'
	@echo 'make fuzz-schedules N=20000 SEED=1 records of schedules with other numbers, on every CPU: refused, or right'
	@echo 'make strict        N=200 SEED=1 random networks with --strict: the same bits on all CPUs; NETS="suite f32 int8 llm FILE.onnx" EVERY=20 ROWS=1,2,16 CPUS=v3'
	@echo 'make fuzz-exact    N=20000 SEED=1 what must not matter (options, schedules, equal networks) gives the same bits in the field of mcc prove'
	@echo 'make mutants       N=1000 SEED=1 changes of the compiler: mcc prove rejects those that compute wrong results; FOLDER=passes/emit'
	@echo 'make fuzz-ort      N=20000 SEED=1 random ONNX networks beside ONNX Runtime, optimised and not; ONLY="Conv Relu", "contrib", "large"'
	@echo 'make fuzz-hostile N=20000 SEED=1 random ONNX networks on hostile inputs; ONLY as of fuzz-ort'
	@echo 'make fuzz-aten     N=20000 SEED=1 drawn calls of PyTorch operators beside eager PyTorch; TORCH=python3 ONLY="add div.Tensor"'
	@echo 'make scaling       each construct at n, 2n, 4n: processor time grows at most 2.3 a doubling, memory 2.2; ONLY="chain fan"'
	@echo 'make fuzz-chains   N=1000 SEED=1 long chains of computations on sizes: a verdict within 10 s of processor time and 1 GiB'
	@echo 'make bench         times beside ONNX Runtime (needs make deps-bench); THREADS=2 ROUNDS=9 UNGATED=1 BATCH=16 GAP=0,1ms CALLERS=2 NETS="resnet50 bert"'
	@echo '                   PEERS=openvino,ncnn,MNN,aoti beside others too (aoti: TORCH=python), COMPETITOR=1 with a busy second CPU'
	@echo 'make bench-threads the bound of mcc inspect --threads beside what two threads take; NETS="resnet50 bert"'
	@echo 'make bench-strict  processor time with --strict over that without; NETS="resnet50 bert" ROUNDS=9'
	@echo 'make bench-windows DLLs under Wine beside shared objects, processor time; NETS="build/nets/bert.onnx" ROUNDS=25'
	@echo 'make bench-int8    quantized networks beside ONNX Runtime and f32; THREADS=2 NETS="resnet50" QUANTIZED=qdq,qop'
	@echo 'make bench-error   the bound of --error on unseen samples of trained networks, accuracy lost; NETS="digits magika det rec moonshine" SPLITS=20'
	@echo 'make bench-choices what --error=1% gains on the 14 networks, over other quantizers; PEERS=nncf,neural-compressor; PRUNED=1 PEERS=deepsparse'
	@echo 'make bench-llm      language models beside ONNX Runtime; SHAPES=smollm2-135m,qwen2.5-0.5b FORMS=f32,int4 LAYERS=6 THREADS=1,2 PEERS=genai,llama.cpp,OpenVINO'
	@echo 'make bench-kernels every micro-kernel alone, against this machine; KERNELS="GEMM 3x3"'
	@echo 'make bench-mca     the inner loops for AArch64 in models of its cores'
	@echo 'make chart         the README'"'"'s picture of docs/ratios.json'
	@echo 'make bench-forms   single forms beside ONNX Runtime: operators, transposes, quantizers; FORMS="transpose lstm"'
	@echo 'make bench-open    networks with dynamic against static sizes: time, kernels, code, compile time; NETS="bert gpt" COUNTS=1 ROUNDS=9'
	@echo 'make bench-pt2     .pt2 files beside the same programs by way of ONNX; TORCH=python NETS="torch timm.lcnet_035" FORM=batch'
	@echo 'make bench-models  the model collection beside ONNX Runtime, compile times and sizes; MODELS="audio rnn"'
	@echo 'make lint          layers, forbidden functions, white space, clang warnings'
	@echo 'make format        mends white space, and C files to what .clang-format has'
	@echo 'make install       PREFIX=/usr/local DESTDIR=; make uninstall removes it, with the same two'
	@echo 'make dist          static tarball, wheel, .deb and their hashes in build/dist; DIST_ARCH=aarch64 for such hosts'
	@echo 'make check-dist    installs and uses each in a venv, a bare Debian and an empty folder (root, debootstrap)'
	@echo 'make windows-bundle  networks and their answers, to be run on Windows (.github/workflows/windows.yml)'
	@echo 'make macos-bundle  the same for Macs (.github/workflows/macos.yml)'
	@echo 'make check-hosted  the Dockerfile and the jobs of .github/workflows, carried out (root); JOB="image check dist"'
	@echo 'make clean         removes the build folder'
	@echo 'variables          BUILD=build  SANITIZE=address,undefined | thread  CC=gcc  V=1  VENV=build/venv'

-include $(shell [ -d $(BUILD) ] && find $(BUILD) \( -path $(BUILD)/dist -o -path $(BUILD)/hosted \) -prune -o -name '*.d' -type f -print)

.PHONY: clean
clean:
	rm -rf $(BUILD)
