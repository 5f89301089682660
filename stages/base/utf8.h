/* stages/base/utf8.h - strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
 * Pure functions over (pointer, length). Source: RFC 3629; the maximal-subpart rule for
 * replacement is Unicode 15, section 3.9, table 3-8. */
#ifndef QUIRE_BASE_UTF8_H
#define QUIRE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* Decode one code point at s (n >= 1 bytes left). *cp is the code point, or UTF8_REPLACEMENT for a
 * bad sequence. Returns the bytes consumed, 1..4; for a bad sequence the negative of that. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Write cp (a Unicode scalar value) to out[4]; returns 1..4. */
int utf8_encode(uint32_t cp, char *out);

/* Offset of the first bad byte, or n when all is valid. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* True when offset i (0..n) of valid UTF-8 does not fall inside a code point. */
bool utf8_is_boundary(const char *s, size_t n, size_t i);

/* Largest boundary <= i of valid UTF-8. */
size_t utf8_floor(const char *s, size_t n, size_t i);

/* Number of code points in valid UTF-8. */
size_t utf8_count(const char *s, size_t n);

#endif
