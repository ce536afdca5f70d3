# SPDX-License-Identifier: Apache-2.0
# The documents, the chat page, and clients of others. Without a browser, or without PyPI, those tests are skipped.
im_script_test(test_page SCRIPT test_page.py LABELS serve host slow)
im_script_test(test_serve_figures SCRIPT ../../bench/serve/serve_figures.py ARGS check LABELS host)
if(TARGET serve)
  im_script_test(test_serve_documents SCRIPT test_serve_documents.py LABELS serve)
  im_script_test(test_serve_load SCRIPT test_serve_load.py LABELS serve host)
  im_script_test(test_page_served SCRIPT test_page_served.py LABELS serve model slow)
  im_script_test(test_serve_clients SCRIPT test_serve_clients.py LABELS serve model slow deep TIMEOUT 1200)
  im_script_test(test_serve_schema_fuzz SCRIPT test_serve_schema_fuzz.py LABELS serve slow deep TIMEOUT 1200)
endif()
