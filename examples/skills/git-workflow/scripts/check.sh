#!/bin/sh
git log -1 --format=%s | grep -q ": "
