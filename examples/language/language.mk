# What the Makefiles of programs with a tokenizer share; BUILD and RUNTIME are theirs. LANGUAGE: their sources and headers from here.
SHARED := ../language
LANGUAGE := $(addprefix $(SHARED)/,adapter.c bpe.c decoder.c draw.c measure.c merge.c onnx_adapter.c safetensors.c split.c tokens.c tokens_json.c tokens_meta.c vocabulary.c) $(RUNTIME)/mcc_load.c
LANGUAGE_NEEDS := $(LANGUAGE) $(wildcard *.h $(SHARED)/*.h) $(BUILD)/classes.h
CFLAGS ?= -O2 -Wall -Wextra
COMPILE = $(CC) -std=gnu11 $(CFLAGS) -I$(BUILD) -I$(SHARED) -I$(RUNTIME) -o $@ $(filter %.c,$^) -ljansson -lm

$(BUILD)/classes.h: $(SHARED)/classes.py
	@mkdir -p $(BUILD)
	python3 $< >$@
