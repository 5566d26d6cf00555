/* mcc inspect --sbom: what an artifact consists of and was made of, as SPDX 2.3 or CycloneDX 1.6: the artifact, its
 * weights, the network and the compiler, with BLAKE3 of each that is known. The network's hash and the options are
 * those of the artifact's note (build_note.h), which `mcc verify` checks; the hash of a tool is that of the mcc that
 * writes the bill.
 */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/commands/inspect/inspect.h"
#include "cli/library/compile/build_note.h"
#include "cli/library/mccc.h"
#include "ir/base/file.h"

struct sbom {
    struct context *ctx;
    const struct artifact_file *a;
    const char *file, *name; /* the artifact's file name; the network's name */
    const char *weights_file; /* "": they are in the artifact; NULL: there are none */
    const char *network, *version; /* the note's hash of it; of the compiler */
    char artifact[DIGEST_TEXT], weights[DIGEST_TEXT], tool[DIGEST_TEXT], created[32];
    struct json j;
};

/* ---- what it says ---- */

static bool hash_weights(struct sbom *b, const char *path)
{
    const struct artifact_file *a = b->a;
    const char *side = a->desc.weights_file;
    if (!a->sizes.weights && !(side && *side))
        return true;
    b->weights_file = side && *side ? path_name(side) : "";
    if (*b->weights_file) {
        const char *sidecar = path_beside(&b->ctx->session, path, b->weights_file);
        return digest_files(b->ctx, &sidecar, 1, b->weights);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && digest_range(fd, a->weights_at, a->sizes.weights, b->weights);
    if (fd >= 0)
        close(fd);
    return ok || error_env(b->ctx, "cannot be read");
}

/* Now, or the time that builds which are to be repeated give (reproducible-builds.org). */
static void set_time(struct sbom *b)
{
    const char *given = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    long long seconds = given && *given ? strtoll(given, &end, 10) : -1;
    time_t at = seconds >= 0 && !*end ? (time_t)seconds : time(NULL);
    struct tm parts;
    if (!gmtime_r(&at, &parts) || !strftime(b->created, sizeof b->created, "%Y-%m-%dT%H:%M:%SZ", &parts))
        memcpy(b->created, "1970-01-01T00:00:00Z", sizeof "1970-01-01T00:00:00Z");
}

static bool gather(struct sbom *b, const struct options *o, const char *path)
{
    const char *self = o->self, *compiler = b->a->api.compiler;
    b->file = path_name(path);
    b->name = *b->a->api.name ? b->a->api.name : "network";
    b->network = build_note_find(&b->ctx->session, b->a->build, NOTE_NETWORK);
    b->version = strncmp(compiler, "mcc ", 4) == 0 ? compiler + 4 : compiler;
    if (!b->network || strlen(b->network) + 1 != DIGEST_TEXT ||
        strspn(b->network, "0123456789abcdef") + 1 != DIGEST_TEXT)
        return error_model(b->ctx, (src_id){0},
                           "it has no note of how it was made: it was stripped, or made by an earlier mcc");
    set_time(b);
    return digest_files(b->ctx, &path, 1, b->artifact) && hash_weights(b, path) &&
           digest_files(b->ctx, &self, 1, b->tool);
}

/* Options as the command line has them. */
static const char *options_text(const struct sbom *b)
{
    struct span left = b->a->build;
    const char *name, *value;
    struct strbuf out = strbuf_of(&b->ctx->session);
    strbuf_printf(&out, "--target=%s", b->a->api.target);
    while (build_note_next(&b->ctx->session, &left, &name, &value))
        if (strcmp(name, NOTE_NETWORK) != 0 && strcmp(name, NOTE_OUTPUT) != 0 && strcmp(name, NOTE_PROOF) != 0)
            strbuf_printf(&out, " --%s=%s", name, value);
    return out.data;
}

/* ---- SPDX ---- */

/* The object stays open. */
static void spdx_package(struct json *j, const char *id, const char *name, const char *hash, const char *purpose)
{
    JSON_GROUP(j, NULL, "{", j_text("SPDXID", id), j_text("name", name), j_text("downloadLocation", "NOASSERTION"),
               j_bool("filesAnalyzed", false), j_text("licenseConcluded", "NOASSERTION"),
               j_text("licenseDeclared", "NOASSERTION"), j_text("copyrightText", "NOASSERTION"),
               j_text("primaryPackagePurpose", purpose));
    if (!hash)
        return;
    json_open(j, "checksums", '[');
    JSON_GROUP(j, NULL, "{}", j_text("algorithm", "BLAKE3"), j_text("checksumValue", hash));
    json_close(j, "]");
}

static void spdx_relation(struct json *j, const char *from, const char *type, const char *to)
{
    JSON_GROUP(j, NULL, "{}", j_text("spdxElementId", from), j_text("relationshipType", type),
               j_text("relatedSpdxElement", to));
}

static void put_spdx(struct sbom *b)
{
    static const char document[] = "SPDXRef-DOCUMENT", artifact[] = "SPDXRef-Artifact", weights[] = "SPDXRef-Weights",
                      network[] = "SPDXRef-Network", compiler[] = "SPDXRef-Compiler";
    struct json *j = &b->j;
    struct arena *arena = &b->ctx->session;
    JSON_GROUP(j, NULL, "{", j_text("spdxVersion", "SPDX-2.3"), j_text("dataLicense", "CC0-1.0"),
               j_text("SPDXID", document), j_text("name", b->file),
               j_text("documentNamespace", arena_printf(arena, "https://spdx.org/spdxdocs/mcc-%s", b->artifact)));
    JSON_GROUP(j, "creationInfo", "{", j_text("created", b->created));
    JSON_GROUP(j, "creators", "[]", j_text(NULL, "Tool: mcc-" MCCC_VERSION));
    json_text(j, "comment", arena_printf(arena, "BLAKE3 of this tool: %s", b->tool));
    json_close(j, "}");
    json_open(j, "packages", '[');
    spdx_package(j, artifact, b->name, b->artifact, "LIBRARY");
    JSON_ADD(j, j_text("packageFileName", b->file),
             j_text("comment", arena_printf(arena, "compiled with %s", options_text(b))));
    json_close(j, "}");
    spdx_package(j, network, b->name, b->network, "SOURCE");
    json_close(j, "}");
    spdx_package(j, compiler, "mcc", NULL, "APPLICATION");
    json_text(j, "versionInfo", b->version);
    json_close(j, "}");
    if (b->weights_file) {
        spdx_package(j, weights, "weights", b->weights, "FILE");
        if (*b->weights_file)
            json_text(j, "packageFileName", b->weights_file);
        json_close(j, "}");
    }
    json_close(j, "]");
    json_open(j, "relationships", '[');
    spdx_relation(j, document, "DESCRIBES", artifact);
    spdx_relation(j, artifact, "GENERATED_FROM", network);
    spdx_relation(j, compiler, "BUILD_TOOL_OF", artifact);
    if (b->weights_file)
        spdx_relation(j, artifact, *b->weights_file ? "DEPENDS_ON" : "CONTAINS", weights);
    json_close(j, "]}");
}

/* ---- CycloneDX ---- */

static void cyclonedx_component(struct json *j, const char *key, const char *type, const char *ref, const char *name,
                                const char *version, const char *hash)
{
    JSON_GROUP(j, key, "{", j_text("type", type), j_text("bom-ref", ref), j_text("name", name));
    if (version)
        json_text(j, "version", version);
    if (!hash)
        return;
    json_open(j, "hashes", '[');
    JSON_GROUP(j, NULL, "{}", j_text("alg", "BLAKE3"), j_text("content", hash));
    json_close(j, "]");
}

static void cyclonedx_property(struct json *j, const char *name, const char *value)
{
    JSON_GROUP(j, NULL, "{}", j_text("name", name), j_text("value", value));
}

/* Who writes the bill, and of what. */
static void cyclonedx_metadata(struct sbom *b)
{
    struct json *j = &b->j;
    struct span left = b->a->build;
    const char *name, *value;
    JSON_GROUP(j, "metadata", "{", j_text("timestamp", b->created));
    json_open(j, "tools", '{');
    json_open(j, "components", '[');
    cyclonedx_component(j, NULL, "application", "tool", "mcc", MCCC_VERSION, b->tool);
    json_close(j, "}]}");
    cyclonedx_component(j, "component", "library", "artifact", b->name, NULL, b->artifact);
    json_open(j, "properties", '[');
    cyclonedx_property(j, "mcc:file", b->file);
    cyclonedx_property(j, "mcc:target", b->a->api.target);
    cyclonedx_property(j, "mcc:variants", b->a->api.features);
    while (build_note_next(&b->ctx->session, &left, &name, &value))
        if (strcmp(name, NOTE_NETWORK) != 0)
            cyclonedx_property(
                j, strcmp(name, NOTE_PROOF) == 0 ? "mcc:proof" : arena_printf(&b->ctx->session, "mcc:option:%s", name),
                value);
    json_close(j, "]}}");
}

static void put_cyclonedx(struct sbom *b)
{
    struct json *j = &b->j;
    const char *h = b->artifact;
    JSON_GROUP(j, NULL, "{", j_text("bomFormat", "CycloneDX"), j_text("specVersion", "1.6"),
               /* of the hash: a UUID of version 8 */
               j_text("serialNumber", arena_printf(&b->ctx->session, "urn:uuid:%.8s-%.4s-8%.3s-a%.3s-%.12s", h, h + 8,
                                                   h + 12, h + 15, h + 18)),
               j_int("version", 1));
    cyclonedx_metadata(b);
    json_open(j, "components", '[');
    cyclonedx_component(j, NULL, "machine-learning-model", "network", b->name, NULL, b->network);
    json_close(j, "}");
    cyclonedx_component(j, NULL, "application", "compiler", "mcc", b->version, NULL);
    json_text(j, "scope", "excluded");
    json_close(j, "}");
    if (b->weights_file) {
        cyclonedx_component(j, NULL, "data", "weights", *b->weights_file ? b->weights_file : "weights", NULL,
                            b->weights);
        json_close(j, "}");
    }
    json_close(j, "]");
    json_open(j, "dependencies", '[');
    JSON_GROUP(j, NULL, "{", j_text("ref", "artifact"));
    JSON_GROUP(j, "dependsOn", "[", j_text(NULL, "network"), j_text(NULL, "compiler"));
    if (b->weights_file)
        json_text(j, NULL, "weights");
    json_close(j, "]}]}");
}

enum fail inspect_sbom(struct context *ctx, const struct options *o, const char *path)
{
    struct artifact_file *a = NEW(&ctx->session, struct artifact_file);
    struct sbom *b = NEW(&ctx->session, struct sbom);
    struct strbuf out = strbuf_of(&ctx->session);
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, path);
    *b = (struct sbom){.ctx = ctx, .a = a, .j = {.out = &out}};
    if (!artifact_read(ctx, path, o->verify, a) || !gather(b, o, path))
        return ctx->fail;
    if (o->sbom == OPT_SBOM_SPDX)
        put_spdx(b);
    else
        put_cyclonedx(b);
    strbuf_append(&out, "\n", 1);
    if (!o->output || strcmp(o->output, "-") == 0)
        terminal_print(&out);
    else if (output_check(ctx, o->output) && output_differs(ctx, o->output, &read, NULL))
        (void)output_write(ctx, o->output, out.data, out.n);
    return ctx->fail;
}
