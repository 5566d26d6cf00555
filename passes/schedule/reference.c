/* docs/reference/schedules.md from the table of fields: what a record of each kind may say. */
#include "passes/schedule/kinds.h"

enum { COLUMNS = 120 };

/* "dim -1 to 31", "0 or 1", "at least 0": what any record may say, whatever its kernel. */
static void put_bounds(struct strbuf *out, const struct field *f)
{
    if (f->most == INT64_MAX)
        strbuf_printf(out, "at least %lld", (long long)f->least);
    else if (f->least == 0 && f->most == 1)
        strbuf_printf(out, "0 or 1");
    else if (f->most == FIELD_MOST)
        strbuf_printf(out, "%lld to 2^30", (long long)f->least);
    else
        strbuf_printf(out, "%lld to %lld", (long long)f->least, (long long)f->most);
}

/* text after what stands in the line already, in lines of COLUMNS. */
static void put_wrapped(struct strbuf *out, const char *text)
{
    size_t line = out->n;
    while (line && out->data[line - 1] != '\n')
        line--;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (out->n - line + 1 + word > COLUMNS) {
            strbuf_printf(out, "\n ");
            line = out->n - 1;
        }
        strbuf_printf(out, " %.*s", (int)word, text);
        text += word + (text[word] == ' ');
    }
    strbuf_printf(out, "\n");
}

static void put_field(struct strbuf *out, const struct field *f)
{
    const char *number = strstr(f->name, "%u");
    if (number)
        strbuf_printf(out, "- `%.*sN%s` (", (int)(number - f->name), f->name, number + 2);
    else
        strbuf_printf(out, "- `%s` (", f->name);
    put_bounds(out, f);
    strbuf_printf(out, ")%s", f->note ? ":" : "");
    put_wrapped(out, f->note ? f->note : "");
}

void schedules_reference(struct strbuf *out)
{
    const uint32_t all = ~(1u << SCHEDULE_NONE);
    for (int kind = 1; kind < SCHEDULE_KINDS; kind++) {
        strbuf_printf(out, "%s## %s: %s\n\n", kind > 1 ? "\n" : "", kind_rows[kind].name, kind_rows[kind].what);
        for (uint32_t i = 0; i < schedule_field_count; i++)
            if (field_is_of(&schedule_fields[i], (enum schedule_kind)kind) && schedule_fields[i].kinds != all)
                put_field(out, &schedule_fields[i]);
    }
    strbuf_printf(out, "\n## Any kind: a version, reductions inside of the kernel, values in scratch\n\n");
    for (uint32_t i = 0; i < schedule_field_count; i++)
        if (schedule_fields[i].kinds == all)
            put_field(out, &schedule_fields[i]);
}
