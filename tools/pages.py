"""What the scripts that measure share: the processor's name, and their tables in the pages of docs/."""


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next(line.split(": ")[1].strip() for line in info if line.startswith("model name"))


def write_between(page, begin, end, text):
    """Puts a text in the place of what stands between two marks."""
    old = page.read_text(encoding="utf-8")
    page.write_text(f"{old.split(begin)[0]}{begin}\n\n{text}\n\n{end}{old.split(end)[1]}", encoding="utf-8")
