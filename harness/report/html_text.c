/* Text and tables, the pieces of which the page is made. */
#include "harness/report/html.h"

#include <string.h>

void html_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default:
            if ((unsigned char)*text >= 0x20 || *text == '\n')
                fputc(*text, f);
            else
                fputc('?', f);
        }
    }
}

void html_table(FILE *f, const char *label, const char *columns)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", f);
    html_text(f, label);
    fputs("\"><table><tr>", f);
    while (*columns) {
        size_t length = strcspn(columns, "|");
        bool number = *columns == '#';
        fprintf(f, "<th scope=\"col\"%s>%.*s</th>", number ? " class=\"n\"" : "",
                (int)(length - number), columns + number);
        columns += length + (columns[length] == '|');
    }
    fputs("</tr>\n", f);
}

void html_table_end(FILE *f)
{
    fputs("</table></div>\n", f);
}
