// What a reader sees of a page, measured where it is shown. The pages themselves have no script: this one is brought
// along by tests/support/browsing.py. Every function returns plain values; what they must be is said by the tests.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SHAPES = "path, rect, circle, ellipse, line, polyline, polygon, use";
  const UNREAD = "title, desc, style, script, noscript, metadata";

  const told = (element) => {
    const words = (element.textContent || "").replace(/\s+/g, " ").trim().slice(0, 40);
    const id = element.id ? `#${element.id}` : "";
    const kind = element.getAttribute("class") ? `.${element.getAttribute("class").trim().replace(/\s+/g, ".")}` : "";
    return `${element.tagName.toLowerCase()}${id}${kind} “${words}”`;
  };

  // Text for screen readers alone is a point that is cut away.
  const seen = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  };
  // What is known of an element is worked out once in a look at the page; it may depend on the same of its parent.
  const looked = [];
  const once = (value) => {
    let found = new Map();
    looked.push(() => (found = new Map()));
    return (element) => {
      if (!found.has(element)) found.set(element, value(element));
      return found.get(element);
    };
  };
  const inherited = (value, first) => {
    const of = once((element) => (element ? value(element, of(element.parentElement)) : first()));
    return of;
  };
  const afresh = (look) => () => {
    looked.forEach((forget) => forget());
    return look();
  };
  const unseen = inherited(
    (element, above) => above || (!element.contains(document.body) && !seen(element)),
    () => false,
  );
  const texts = () =>
    all("body *, svg *").filter(
      (element) =>
        !element.closest(UNREAD) &&
        [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()) &&
        !unseen(element),
    );
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const inside = inherited((element, above) => above || scrolls(element), () => false);
  const scrolled = (element) => inside(element.parentElement);
  const outer = () => all("svg").filter((svg) => !svg.ownerSVGElement && seen(svg));

  // --- colours -------------------------------------------------------------------------------------------------
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], below) => [...[r, g, b].map((value, i) => value * a + below[i] * (1 - a)), 1];
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const faded = inherited((element, above) => above * getComputedStyle(element).opacity, () => 1);
  const canvas = () => {
    const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
    return dark && matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
  };
  const ground = inherited((element, above) => over(rgba(getComputedStyle(element).backgroundColor), above), canvas);
  const painted = (element, what) => {
    const style = getComputedStyle(element);
    if (style[what] === "none" || style[what].startsWith("url")) return null;
    const [r, g, b, a] = rgba(style[what]);
    return [r, g, b, a * style[`${what}Opacity`] * faded(element)];
  };
  const filled = once((svg) =>
    all(SHAPES, svg)
      .map((shape) => ({ shape, fill: shape.isPointInFill && painted(shape, "fill"), box: shape.getBoundingClientRect() }))
      .filter(({ fill }) => fill && fill[3] > 0),
  );
  // What was painted before the text, under three points of it.
  const grounds = (text) => {
    const svg = text.closest("svg");
    const { left, right, top, bottom, width } = text.getBoundingClientRect();
    const before = filled(svg).filter(
      ({ shape, box }) =>
        box.left < right && box.right > left && box.top < bottom && box.bottom > top &&
        text.compareDocumentPosition(shape) & Node.DOCUMENT_POSITION_PRECEDING,
    );
    return [left + 2, left + width / 2, right - 2].map((x) => {
      const point = new DOMPoint(x, (top + bottom) / 2);
      return before.reduce((below, { shape, fill }) => {
        const inside = shape.isPointInFill(point.matrixTransform(shape.getScreenCTM().inverse()));
        return inside ? over(fill, below) : below;
      }, ground(svg));
    });
  };
  const contrasts = () =>
    texts().map((element) => {
      const drawn = element.closest("svg");
      const ink = drawn ? painted(element, "fill") : rgba(getComputedStyle(element).color);
      const below = drawn ? grounds(element) : [ground(element)];
      const alpha = drawn ? ink[3] : ink[3] * faded(element);
      const worst = Math.min(...below.map((each) => ratio(over([...ink.slice(0, 3), alpha], each), each)));
      return { what: told(element), contrast: worst };
    });

  // --- room ----------------------------------------------------------------------------------------------------
  const sideways = () => {
    const width = document.documentElement.clientWidth;
    const flow = all("body *").filter((each) => !each.ownerSVGElement && !scrolled(each) && !unseen(each));
    const outside = flow.filter((each) => {
      const box = each.getBoundingClientRect();
      return box.right > width + 1 || box.left < -1;
    });
    const cut = flow.filter(
      (each) =>
        ["hidden", "clip"].includes(getComputedStyle(each).overflowX) &&
        !(each instanceof SVGElement) &&
        each.scrollWidth > each.clientWidth + 1,
    );
    const page = document.documentElement.scrollWidth > width ? [`the page is ${document.documentElement.scrollWidth} wide`] : [];
    return [...page, ...outside.map((each) => `outside: ${told(each)}`), ...cut.map((each) => `cut: ${told(each)}`)];
  };
  const scrollers = () =>
    all("body *")
      .filter((each) => scrolls(each) && seen(each))
      .map((each) => ({
        what: told(each),
        hides: each.scrollWidth > each.clientWidth + 1,
        reachable: each.tabIndex >= 0,
        role: each.getAttribute("role") || each.tagName.toLowerCase(),
        name: named(each),
      }));

  // --- charts --------------------------------------------------------------------------------------------------
  const chart = (svg) => {
    const box = svg.getBoundingClientRect();
    const marks = all(SHAPES, svg).filter((mark) => {
      const size = mark.getBoundingClientRect();
      return size.width + size.height > 0 && ["fill", "stroke"].some((what) => (painted(mark, what) || [0, 0, 0, 0])[3] > 0);
    });
    return {
      what: told(svg.closest("figure") || svg),
      width: box.width,
      height: box.height,
      marks: marks.length,
      role: svg.getAttribute("role"),
      hidden: svg.getAttribute("aria-hidden") === "true",
      name: named(svg),
    };
  };
  const figures = () =>
    all("figure")
      .filter((each) => each.checkVisibility())
      .map((each) => ({ what: told(each), charts: outer().filter((svg) => each.contains(svg)).map(chart) }));
  const words = (svg) => all("text", svg).filter((text) => text.textContent.trim() && seen(text));
  const cut = () =>
    outer().flatMap((svg) => {
      const frame = svg.getBoundingClientRect();
      return words(svg)
        .filter((text) => {
          const box = text.getBoundingClientRect();
          return box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
        })
        .map((text) => `${told(text)} in ${told(svg.closest("figure") || svg)}`);
    });
  const collisions = () =>
    outer().flatMap((svg) => {
      const boxes = words(svg).map((text) => [text, text.getBoundingClientRect()]);
      return boxes.flatMap(([text, a], i) =>
        boxes
          .slice(i + 1)
          .filter(
            ([, b]) =>
              Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5,
          )
          .map(([other]) => `${told(text)} × ${told(other)} in ${told(svg.closest("figure") || svg)}`),
      );
    });

  // --- structure -----------------------------------------------------------------------------------------------
  const named = (element) => {
    const ids = (element.getAttribute("aria-labelledby") || "").split(/\s+/).filter(Boolean);
    const label = ids.map((id) => document.getElementById(id)?.textContent || "").join(" ");
    const title = [...element.children].find((child) => child.tagName.toLowerCase() === "title")?.textContent;
    return (label || element.getAttribute("aria-label") || title || "").trim();
  };
  const structure = () => ({
    language: document.documentElement.lang,
    title: document.title,
    mains: all("main, [role=main]").length,
    levels: all("h1, h2, h3, h4, h5, h6").filter((each) => each.checkVisibility()).map((each) => Number(each.tagName[1])),
    tables: all("table").map((each) => ({
      what: told(each),
      caption: (each.caption?.textContent || "").trim(),
      headers: all("th", each).map((cell) => cell.scope),
    })),
    svgs: outer().map(chart),
    ids: all("[id]").map((each) => each.id),
    references: all("[aria-labelledby], [aria-describedby], [aria-controls]").flatMap((each) =>
      ["aria-labelledby", "aria-describedby", "aria-controls"].flatMap((name) =>
        (each.getAttribute(name) || "").split(/\s+/).filter(Boolean),
      ),
    ),
    links: all("a").map((each) => ({ what: told(each), href: each.getAttribute("href") })),
    elements: [...new Set(all("*").map((each) => each.tagName.toLowerCase()))],
    attributes: [...new Set(all("*").flatMap((each) => each.getAttributeNames()))],
  });

  // --- keyboard ------------------------------------------------------------------------------------------------
  const stops = () =>
    all("a[href], summary, button, input, select, textarea, [tabindex]").filter(
      (each) => each.tabIndex >= 0 && !unseen(each),
    );
  const focused = () => {
    const element = document.activeElement;
    if (!element || element === document.body || element === document.documentElement) return null;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return {
      what: told(element),
      place: all("*").indexOf(element),
      ring: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none",
      visible: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    };
  };

  globalThis.look = {
    room: afresh(() => ({
      figures: figures(),
      charts: outer().map(chart),
      sideways: sideways(),
      scrollers: scrollers(),
      cut: cut(),
      collisions: collisions(),
    })),
    contrasts: afresh(contrasts),
    focused: afresh(focused),
    stops: afresh(() => stops().map((each) => ({ what: told(each), place: all("*").indexOf(each) }))),
    structure: afresh(structure),
    ground: afresh(() => ground(document.body)),
    open: () => all("details").forEach((each) => (each.open = true)),
    text: () => document.body.innerText,
    // Margins and size of the paper, as the page asks for it.
    paper: () => {
      const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
      const inside = rules.flatMap((rule) => [rule, ...(rule.cssRules || [])]);
      const page = inside.find((rule) => rule instanceof CSSPageRule);
      return page ? { size: page.style.getPropertyValue("size"), margin: page.style.getPropertyValue("margin") } : null;
    },
  };
})();
