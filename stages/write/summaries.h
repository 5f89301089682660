/* stages/write/summaries.h - the pages for people, made from the records when all of them are there. */
#ifndef QUIRE_WRITE_SUMMARIES_H
#define QUIRE_WRITE_SUMMARIES_H

#include "stages/write/output.h"

/* A page for each record that did not fail. */
int summaries_write(struct output *o, struct err *e) MUST_CHECK;

#endif
