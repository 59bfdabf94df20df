"""LaTeX: the tabulars, and what stands in their cells."""

import pytest

from worldsize.documents.document import Document, Table
from worldsize.documents.read import read
from worldsize.documents.tex import plain


def paper(text: str) -> Document:
    return read("a.tex", text=text)


def table(text: str) -> Table:
    (found,) = paper(text).tables
    return found


def test_groups_of_columns() -> None:
    found = table(
        r"""\documentclass{article}
\usepackage{booktabs} % rules
\begin{document}
\section{Results}
Weak scaling on \emph{four} GPUs, with $N = 4$.
\begin{table}[t]
  \centering
  \caption[short]{Time of an \textbf{epoch} (s), 50\,000 images\label{tab:a}}
  \begin{tabular}{@{}lrr@{}c@{}rr@{}}
    \toprule
    & \multicolumn{2}{c}{32 per GPU} && \multicolumn{2}{c}{128 per GPU} \\
    \cmidrule(lr){2-3} \cmidrule(lr){5-6}
    & Time & Speedup && Time & Speedup \\
    \midrule
    1-GPU & 25.86 & 1.00 && 14.73 & 1.00 \\ % the base
    2-GPU & 36.93 & \textbf{1.40} && {\bf 17.59} & $\mathbf{1.67}$ \\[2pt]
    4-GPU & 27.25 & 3.80$^{\dagger}$ && $14.82 \pm 0.3$ & $3.97\times$ \\
    \bottomrule
  \end{tabular}
\end{table}
\end{document}"""
    )
    assert found.caption == "Time of an epoch (s), 50 000 images"
    assert found.line == 9
    assert found.header == (
        ("", "32 per GPU", "32 per GPU", "128 per GPU", "128 per GPU"),
        ("", "Time", "Speedup", "Time", "Speedup"),
    )
    assert found.rows == (
        ("1-GPU", "25.86", "1.00", "14.73", "1.00"),
        ("2-GPU", "36.93", "1.40", "17.59", "1.67"),
        ("4-GPU", "27.25", "3.80", "14.82 ± 0.3", "3.97×"),
    )
    assert found.bold == {(1, 2), (1, 3), (1, 4)}


def test_words_are_paragraphs() -> None:
    document = paper(
        "\\usepackage{x}\n\\begin{document}\n\\section{Results}\nSpeedup~is\n$T_1/T_N$.\n\n"
        "More \\cite{a} words --- here.\n"
        "\\begin{tabular}{rr} a & b \\\\ 1 & 2 \\end{tabular}\nAfter 5\\% of it."
    )
    assert document.text.split("\n") == ["Results", "Speedup is T_1/T_N.", "More words — here.", "After 5% of it."]


@pytest.mark.parametrize(
    "begin",
    [
        r"\begin{tabular}[t]{|r|p{3cm}|}",
        r"\begin{tabular*}{\textwidth}{@{\extracolsep{\fill}}rr}",
        r"\begin{tabularx}{0.5\linewidth}{rX}",
        r"\begin{array}{rr}",
        r"\begin{longtable}[c]{rr}",
    ],
)
def test_kin_of_tabular(begin: str) -> None:
    end = begin.replace("begin", "end").partition("}")[0] + "}"
    found = table(f"{begin}\\hline GPUs & Time \\\\ \\hline\\hline 1 & 38 \\\\ \\hline 2 & 20 \\\\ \\hline {end}")
    assert (found.header, found.rows) == ((("GPUs", "Time"),), (("1", "38"), ("2", "20")))


def test_rows_that_are_spanned() -> None:
    found = table(
        r"\begin{tabular}{llr} Model & GPUs & Time \\ \hline \multirow{2}{*}{ResNet} & 1 & 38 \\ & "
        r"2 & 20 \\ \cline{1-3}"
        r"\multirow[t]{2}{2cm}{\textbf{VGG}} & 1 & 50 \\ & 2 & 30 \\ \end{tabular}"
    )
    assert found.rows == (("ResNet", "1", "38"), ("ResNet", "2", "20"), ("VGG", "1", "50"), ("VGG", "2", "30"))


def test_a_heading_on_further_pages_is_there_once() -> None:
    found = table(
        r"\begin{longtable}{rr}\caption{All of it}\\\toprule GPUs & Time \\ \midrule \endfirsthead "
        r"GPUs & Time \\ \midrule"
        r" \endhead \multicolumn{2}{r}{continued} \\ \endfoot \bottomrule \endlastfoot 1 & 38 \\ 2 "
        r"& 20 \\ \end{longtable}"
    )
    assert (found.caption, found.header) == ("All of it", (("GPUs", "Time"),))
    assert found.rows == (("1", "38"), ("2", "20"))


def test_a_cell_of_several_lines() -> None:
    found = table(
        r"\begin{tabular}{ll} GPUs & \begin{tabular}[c]{@{}c@{}}Time\\ (s)\end{tabular} & "
        r"\makecell{Speed\\up} \\ \hline"
        r" 1 & 38 & 1 \\ \end{tabular}"
    )
    assert found.header == (("GPUs", "Time (s)", "Speed up"),)


def test_captions_of_two_tables_in_one_float() -> None:
    one = r"\caption{%s}\begin{tabular}{rr} a & b \\ 1 & 2 \\ \end{tabular}"
    first, second = paper(f"\\begin{{table}}{one % 'A'}{one % 'B'}\\end{{table}}").tables
    assert (first.caption, second.caption) == ("A", "B")
    first, second = paper(
        f"\\begin{{table}}\\caption{{All}}\\begin{{subtable}}{{3cm}}{one % 'A'}\\end{{subtable}}"
        f"\\begin{{subtable}}{{3cm}}{one % 'B'}\\end{{subtable}}\\end{{table}}"
    ).tables
    assert (first.caption, second.caption) == ("A", "B")


def test_commands_of_the_author() -> None:
    found = table(
        r"\newcommand{\ours}{WorldNet} \begin{tabular}{lr} Model & Time \\ \hline \ours & 38 \\ \end{tabular}"
    )
    assert found.rows == (("WorldNet", "38"),)


def test_the_end_is_missing() -> None:
    document = paper(
        r"\begin{table}\begin{tabular}{rr} a & b \\ 1 & 2 \\ \end{table} Words. \begin{tabular}{rr} c & d \\ 3 & 4"
    )
    assert [each.rows for each in document.tables] == [(("1", "2"),), (("3", "4"),)]


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        (r"\num{1.5e3}", "1.5e3"),
        (r"\SI{16}{\giga\byte\per\second}", "16 GB/s"),
        (r"\qty[mode=text]{25.86}{s}", "25.86 s"),
        (r"\si{\milli\second}", "ms"),
        (r"11{,}689{,}512", "11,689,512"),
        (r"12\,s~(a\&b)", "12 s (a&b)"),
        (r"{\small 5\%}", "5%"),
        (r"$\frac{T_1}{T_N}$", "T_1/T_N"),
        (r"\textcolor{red}{12.3}", "12.3"),
        (r"\cellcolor{gray!20}12.3", "12.3"),
        (r"\href{https://a.b}{name}", "name"),
        (r"\unknown[x]{12.3}", "12.3"),
        (r"$\geq$ 3 \footnote{no}", "≥ 3"),
        (r"T\textsubscript{1}", "T_1"),
        (r"10$^{-3}$", "10^-3"),
        (r"$10^6$", "10^6"),
        (r"a\_b \#1 \$5", "a_b #1 $5"),
    ],
)
def test_what_is_printed(source: str, printed: str) -> None:
    assert plain(source).text == printed
