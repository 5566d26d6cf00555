/* Finds and reads the text in PNG pictures with the three networks of the PyPI package rapidocr-onnxruntime.
 *
 *     ocr [-v] [-d boxes.png] det.so cls.so rec.so picture.png
 *
 * One line for each text: how sure, the four corners, the text. -d writes the picture with its boxes drawn, -v says
 * time and memory on standard error. The limits are the package's own. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "boxes.h"
#include "ctc.h"
#include "image.h"
#include "network.h"

enum {
    SIDE_MAX = 2000,
    SIDE_MIN = 30,
    DETECT_MIN = 736,
    STEP = 32,
    HEIGHT_MIN = 30,
    RATIO_MAX = 8,
    LINE = 48,
    CLASSIFY_WIDTH = 192,
    READ_WIDTH = 320,
    BATCH = 6
};
static const double TURNED = 0.9, SURE = 0.5;

struct line {
    box where;
    image crop;
    double ratio;
    char *text;
    double score;
};

/* A side that the detector takes. */
static int to_steps(double v)
{
    return v < STEP ? STEP : (int)nearbyint(v / STEP) * STEP;
}

/* ---- pictures for networks --------------------------------------------------------------------------------------- */

/* The picture into one batch element [3][height][width], white 1, black -1, what is right of it 0. */
static void normalize(const image *m, float *out, int height, int width, int detector)
{
    float level[256];
    for (int i = 0; i < 256; i++) /* the two ways in which the original computes it */
        level[i] = detector ? (float)(((double)((float)i * (float)(1 / 255.0)) - 0.5) / 0.5)
                            : ((float)i / 255.0f - 0.5f) / 0.5f;
    memset(out, 0, (size_t)height * (size_t)width * 3 * sizeof(float));
    for (int y = 0; y < m->h; y++)
        for (int x = 0; x < m->w; x++)
            for (int c = 0; c < 3; c++)
                out[((size_t)c * (size_t)height + (size_t)y) * (size_t)width + (size_t)x] =
                    level[m->px[((size_t)y * (size_t)m->w + (size_t)x) * 3 + (size_t)c]];
}

/* So that no side is too long and none too short. */
static image fit(const image *m)
{
    int longest = m->w > m->h ? m->w : m->h;
    image a = longest > SIDE_MAX ? image_resize(m, to_steps((int)(m->w * (double)SIDE_MAX / longest)),
                                                to_steps((int)(m->h * (double)SIDE_MAX / longest)))
                                 : image_rotate(m, 0);
    int shortest = a.w < a.h ? a.w : a.h;
    if (shortest >= SIDE_MIN)
        return a;
    double r = (double)SIDE_MIN / shortest;
    image b = image_resize(&a, to_steps((int)(a.w * r)), to_steps((int)(a.h * r)));
    image_free(&a);
    return b;
}

/* Rows of black above and below pictures that are very flat. */
static int letterbox_rows(const image *m)
{
    if (m->h > HEIGHT_MIN && m->w <= RATIO_MAX * m->h)
        return 0;
    int wanted = m->w / RATIO_MAX > HEIGHT_MIN ? m->w / RATIO_MAX : HEIGHT_MIN;
    return abs(2 * wanted - m->h) / 2;
}

/* ---- the three networks ------------------------------------------------------------------------------------------ */

static int detect(network *det, const image *m, box out[BOXES_MAX])
{
    int shortest = m->w < m->h ? m->w : m->h;
    double r = shortest < DETECT_MIN ? (double)DETECT_MIN / shortest : 1;
    int w = to_steps((int)(m->w * r)), h = to_steps((int)(m->h * r));
    image a = image_resize(m, w, h);
    float *in = need(malloc((size_t)w * (size_t)h * 3 * sizeof(float)));
    normalize(&a, in, h, w, 1);
    network_run(det, in, 1, 3, h, w);
    int n = boxes_find(det->out, (int)det->shape[3], (int)det->shape[2], m->w, m->h, out);
    free(in);
    image_free(&a);
    return n;
}

/* Upright, and lying when it is much higher than wide. */
static image cut_out(const image *m, const point c[4])
{
    int w = (int)fmax(distance(c[0], c[1]), distance(c[2], c[3])),
        h = (int)fmax(distance(c[0], c[3]), distance(c[1], c[2]));
    image a = image_crop(m, c, w, h);
    if (h < 1.5 * w)
        return a;
    image b = image_rotate(&a, 1);
    image_free(&a);
    return b;
}

/* `count` lines side by side in one batch; width: of the network's input. Each keeps its shape unless it is too
 * wide. */
static float *batch_of(struct line **l, int count, int width)
{
    float *in = need(malloc((size_t)count * 3 * LINE * (size_t)width * sizeof(float)));
    for (int i = 0; i < count; i++) {
        double w = ceil(LINE * l[i]->ratio);
        image a = image_resize(&l[i]->crop, w > width ? width : (int)w, LINE);
        normalize(&a, in + (size_t)i * 3 * LINE * (size_t)width, LINE, width, 0);
        image_free(&a);
    }
    return in;
}

/* Lines that stand on their heads are turned round. */
static void turn_round(network *cls, struct line **l, int count)
{
    float *in = batch_of(l, count, CLASSIFY_WIDTH);
    network_run(cls, in, count, 3, LINE, CLASSIFY_WIDTH);
    for (int i = 0; i < count; i++)
        if (cls->out[2 * i + 1] > cls->out[2 * i] && (double)cls->out[2 * i + 1] > TURNED) {
            image turned = image_rotate(&l[i]->crop, 2);
            image_free(&l[i]->crop);
            l[i]->crop = turned;
        }
    free(in);
}

static void read_lines(network *rec, const alphabet *a, struct line **l, int count)
{
    double widest = (double)READ_WIDTH / LINE;
    for (int i = 0; i < count; i++)
        widest = fmax(widest, l[i]->ratio);
    int width = (int)(LINE * widest);
    float *in = batch_of(l, count, width);
    network_run(rec, in, count, 3, LINE, width);
    int steps = (int)rec->shape[1], classes = (int)rec->shape[2];
    for (int i = 0; i < count; i++)
        l[i]->text = ctc_decode(a, rec->out + (size_t)i * (size_t)steps * (size_t)classes, steps, classes,
                                &l[i]->score);
    free(in);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int by_ratio(const void *a, const void *b)
{
    const struct line *p = *(struct line *const *)a, *q = *(struct line *const *)b;
    return p->ratio != q->ratio ? (p->ratio > q->ratio) - (p->ratio < q->ratio) : (p > q) - (p < q);
}

/* Batches of lines of similar width, so that little of a batch is padding. */
static void read_all(network *cls, network *rec, struct line *lines, int n)
{
    const char *words = meta_find(rec->lib->api->meta, "character");
    alphabet a = alphabet_new(words ? words : "");
    struct line **sorted = need(malloc((size_t)n * sizeof *sorted));
    for (int i = 0; i < n; i++)
        sorted[i] = &lines[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_ratio);
    for (int i = 0; i < n; i += BATCH)
        turn_round(cls, sorted + i, n - i < BATCH ? n - i : BATCH);
    for (int i = 0; i < n; i += BATCH)
        read_lines(rec, &a, sorted + i, n - i < BATCH ? n - i : BATCH);
    free(sorted);
    alphabet_free(&a);
}

/* Corners in the given picture, printed and drawn. */
static void show(const struct line *l, const image *fitted, int rows, const image *given, image *drawn)
{
    static const uint8_t red[3] = {0, 0, 255};
    point p[4];
    printf("%.3f", l->score);
    for (int i = 0; i < 4; i++) {
        p[i].x = fmin(fmax(l->where.corner[i].x * given->w / fitted->w, 0), given->w);
        p[i].y = fmin(fmax((l->where.corner[i].y - rows) * given->h / fitted->h, 0), given->h);
        printf(" %.0f,%.0f", p[i].x, p[i].y);
    }
    printf(" %s\n", l->text);
    for (int i = 0; drawn->px && i < 4; i++)
        image_line(drawn, p[i], p[(i + 1) % 4], red);
}

static void report(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char text[256];
    while (status && fgets(text, sizeof text, status))
        if (strncmp(text, "VmHWM:", 6) == 0)
            fprintf(stderr, "memory %ld kB\n", strtol(text + 6, NULL, 10));
    if (status)
        fclose(status);
}

int main(int argc, char **argv)
{
    static box boxes[BOXES_MAX];
    static struct line lines[BOXES_MAX];
    const char *boxes_to = NULL;
    int verbose = 0, ok = 1;
    for (int c; (c = getopt(argc, argv, "vd:")) != -1;)
        c == 'd' ? (void)(boxes_to = optarg) : (void)(verbose = 1);
    image given;
    if (argc - optind != 4) {
        fprintf(stderr, "usage: ocr [-v] [-d boxes.png] det.so cls.so rec.so picture.png\n");
        return 2;
    }
    if (!png_read(argv[optind + 3], &given))
        return 1;
    network det = network_open(argv[optind]), cls = network_open(argv[optind + 1]),
            rec = network_open(argv[optind + 2]);
    image fitted = fit(&given), drawn = boxes_to ? image_rotate(&given, 0) : (image){0};
    int rows = letterbox_rows(&fitted);
    image page = image_letterbox(&fitted, rows);
    int n = detect(&det, &page, boxes);
    for (int i = 0; i < n; i++) {
        image crop = cut_out(&page, boxes[i].corner);
        lines[i] = (struct line){boxes[i], crop, (double)crop.w / crop.h, NULL, 0};
    }
    read_all(&cls, &rec, lines, n);
    for (int i = 0; i < n; i++) {
        if (lines[i].score >= SURE)
            show(&lines[i], &fitted, rows, &given, &drawn);
        free(lines[i].text);
        image_free(&lines[i].crop);
    }
    if (boxes_to)
        ok = png_write(boxes_to, &drawn);
    network_close(&det), network_close(&cls), network_close(&rec);
    image_free(&given), image_free(&fitted), image_free(&page), image_free(&drawn);
    if (verbose)
        report();
    return !ok;
}
