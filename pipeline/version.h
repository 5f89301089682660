/* pipeline/version.h - the program's version, as `quire version` and run.json print it. */
#ifndef QUIRE_PIPELINE_VERSION_H
#define QUIRE_PIPELINE_VERSION_H

#define QUIRE_VERSION "0.1.0"

#endif
