#!/usr/bin/env python3
"""Draws pictures with text for compare.py: fonts, sizes, colours, two columns, turned lines, transparency.

usage: render.py FOLDER        needs Pillow, and DejaVu fonts (Debian: fonts-dejavu-core)
"""
import pathlib
import sys

from PIL import Image, ImageDraw, ImageFont

FONTS = "/usr/share/fonts/truetype/dejavu/"
SANS, BOLD, SERIF, MONO = "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf"
WORDS = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen liquor jugs.",
         "Sphinx of black quartz, judge my vow!", "Invoice No. 2024-11873", "Total: 1,482.50 EUR", "Phone +49 30 1234567"]


def font(name, size):
    return ImageFont.truetype(FONTS + name, size)


def page(size, ground="white", mode="RGB"):
    picture = Image.new(mode, size, ground)
    return picture, ImageDraw.Draw(picture)


def lines(size, name, points, texts, ink="black", ground="white", spacing=1.8, at=(20, 20)):
    picture, draw = page(size, ground)
    for i, text in enumerate(texts):
        draw.text((at[0], at[1] + i * points * spacing), text, ink, font(name, points))
    return picture


def sizes():
    picture, draw = page((900, 620))
    y = 20
    for points in (12, 16, 22, 30, 42, 60):
        draw.text((20, y), f"Text of {points} points", "black", font(SANS, points))
        y += int(points * 1.7) + 14
    return picture


def columns():
    picture, draw = page((1000, 500))
    left = ["Left column, first", "a second line here", "and then a third", "ends at the fourth"]
    right = ["Right column, first", "its second line", "more words to read", "the very last line"]
    for i, (a, b) in enumerate(zip(left, right)):
        draw.text((30, 40 + 90 * i), a, "black", font(SERIF, 28))
        draw.text((540, 40 + 90 * i), b, "black", font(SERIF, 28))
    return picture


def turned(angle, text, size):
    line, draw = page((620, 60))
    draw.text((10, 8), text, "black", font(SANS, 32))
    picture = Image.new("RGB", size, "white")
    line = line.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    picture.paste(line, ((size[0] - line.width) // 2, (size[1] - line.height) // 2))
    return picture


def colours():
    picture, draw = page((800, 420), "#204060")
    for i, (ink, text) in enumerate([("white", "White on blue"), ("#ffd040", "Yellow is readable"), ("#80ff80", "Pale green letters"),
                                     ("#c0c0c0", "And some in grey")]):
        draw.text((40, 30 + 95 * i), text, ink, font(BOLD, 38))
    return picture


def table():
    picture, draw = page((760, 360))
    for i, row in enumerate([("Item", "Count", "Price"), ("Screws", "250", "12.40"), ("Hammer", "2", "31.90"), ("Paint", "7", "88.20")]):
        for k, cell in enumerate(row):
            draw.text((40 + 240 * k, 30 + 80 * i), cell, "black", font(BOLD if i == 0 else SANS, 30))
        draw.line((20, 80 + 80 * i, 740, 80 + 80 * i), "black", 2)
    return picture


def heads_down():
    return lines((700, 300), SANS, 34, ["Upside down text", "is turned round"], spacing=2.4).rotate(180)


def clear():
    picture = Image.new("RGBA", (640, 240), (0, 0, 0, 0))
    draw = ImageDraw.Draw(picture)
    draw.text((30, 40), "Letters on nothing", (0, 0, 0, 255), font(SANS, 40))
    draw.text((30, 140), "still to be read", (0, 0, 0, 255), font(SERIF, 40))
    return picture


PICTURES = {
    "plain": lambda: lines((820, 420), SANS, 30, WORDS),
    "serif": lambda: lines((760, 380), SERIF, 26, WORDS),
    "mono": lambda: lines((900, 400), MONO, 28, WORDS),
    "sizes": sizes,
    "columns": columns,
    "turned_12": lambda: turned(12, "A line turned by twelve degrees", (720, 320)),
    "turned_minus_30": lambda: turned(-30, "Thirty degrees downwards", (700, 480)),
    "turned_90": lambda: turned(90, "This one climbs upwards", (200, 760)),
    "colours": colours,
    "table": table,
    "heads_down": heads_down,
    "clear": clear,
    "grey": lambda: lines((700, 300), SERIF, 32, ["Grey as newspaper", "1234567890", "(a + b) * c = 42"], "#464646",
                          "#bebebe").convert("L"),
    "flat": lambda: lines((1200, 60), SANS, 28, ["One flat line of text in a picture like a banner"], at=(20, 12)),
    "small": lambda: lines((150, 28), SANS, 18, ["Tiny label"], at=(6, 3)),
    "large": lambda: lines((2600, 700), BOLD, 90, ["Letters larger than needed", "on a large sheet of paper"], spacing=2.5, at=(80, 80)),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw().save(folder / f"{name}.png")


if __name__ == "__main__":
    main()
